"""In which part of its iteration a rank stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from batches import Node, comm_info, records

from whichrank.model.kinds import Kind
from whichrank.model.telemetry import RECORD_REPORTED, ProcessState
from whichrank.store.store import Store

Rows = np.ndarray
MS = 1_000_000
PIPELINE = comm_info(7, [0, 2, 4, 6], "mesh_pp")


def mark(rank: int, kind: Kind, at_ms: float, end_ms: float = 0.0, number: int = 0) -> Rows:
    row = np.zeros(1, RECORD_REPORTED)
    row["rank"], row["row"]["kind"], row["row"]["peer"], row["row"]["status"] = rank, kind, -1, 1
    row["row"]["t_issue_ns"], row["row"]["t_end_ns"] = at_ms * MS, end_ms * MS
    row["row"]["counter"], row["row"]["comm_slot"] = number, 0xFFFF
    return row


def begins(rank: int, at_ms: float) -> Rows:
    return mark(rank, Kind.PASS, at_ms)


def ends(rank: int, at_ms: float) -> Rows:
    return mark(rank, Kind.PASS, at_ms - 1, at_ms)


def step(rank: int, at_ms: float, number: int) -> Rows:
    return mark(rank, Kind.STEP, at_ms, at_ms, number)


def sends(rank: int, to: int, at_ms: float, counter: int) -> Rows:
    """A message to a place of the pipeline."""
    at_ns = int(at_ms * MS)
    return records(rank, 7, counter, 1, kind=Kind.SEND, peer=to, t_issue_ns=at_ns, t_end_ns=at_ns + 1)


def numbered(rows: Iterable[Rows]) -> list[Rows]:
    """Operations of each rank are numbered by time, and marks have the number of the operation before them."""
    found, count = [row.copy() for row in rows], Counter[int]()
    for row in sorted(found, key=lambda row: int(max(row["row"]["t_issue_ns"][0], row["row"]["t_end_ns"][0]))):
        count[int(row["rank"][0])] += row["row"]["kind"][0] < Kind.STEP
        row["row"]["ordinal"] = count[int(row["rank"][0])]
    return found


def part(*rows: Rows, rank: int = 2, whole: bool = True) -> tuple[str, int | None] | None:
    """Told at once, or one by one."""
    rows = tuple(numbered(rows))
    store, node = Store(), Node("a:1", list(range(8)), 8).comm(PIPELINE)
    store.feed(node.batch(0.1), 0.1)
    parts = [np.concatenate(rows)] if whole else list(rows)
    for number, one in enumerate(parts):
        store.feed(node.batch(1.0 + number, one), 1.0 + number)
    return store.passes.part_of(
        rank, max((int(r["row"]["ordinal"][0]) for r in rows if r["rank"][0] == rank), default=0)
    )


def iteration(rank: int, at_ms: float, number: int, passes: int) -> list[Rows]:
    """Passes of 10 ms each, and a step."""
    found = [one(rank, at_ms + 20 * k + 10 * n) for k in range(passes) for n, one in enumerate((begins, ends))]
    return [*found, step(rank, at_ms + 20 * passes, number)]


THREE = [*iteration(2, 100, 1, 3), *iteration(2, 200, 2, 3), *iteration(2, 300, 3, 3)]
"""Gradients of three microbatches are added up; at 400 ms the next iteration is under way."""
ONE = [*iteration(2, 100, 1, 1), *iteration(2, 200, 2, 1), *iteration(2, 300, 3, 1)]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("before", "since", "expected"),
    [
        (THREE, [begins(2, 410)], ("backward", 0)),
        (THREE, [begins(2, 410), ends(2, 420)], ("forward", 1)),
        (THREE, [begins(2, 410), ends(2, 420), begins(2, 430)], ("backward", 1)),
        (THREE, [row for k in range(3) for row in (begins(2, 410 + 20 * k), ends(2, 420 + 20 * k))],
         ("optimizer", None)),
        (THREE, [row for k in range(4) for row in (begins(2, 410 + 20 * k), ends(2, 420 + 20 * k))], None),
        (THREE, [begins(2, 410), ends(2, 420), step(2, 430, 4), begins(2, 440)], ("backward", None)),
        (THREE, iteration(2, 410, 4, 2), None),
        (ONE, [], ("iteration start", None)),  # it may evaluate or save something
        (ONE, [begins(2, 410)], ("backward", None)),
        (ONE, [begins(2, 410), ends(2, 420)], ("optimizer", None)),
        # A rank of a pipeline, which may hold several stages
        (THREE, [sends(2, 2, 410, 1)], ("forward", None)),
        (THREE, [sends(2, 0, 410, 1)], None),
        (THREE, [sends(2, 2, 410, 1), begins(2, 420)], ("backward", None)),
        # Two optimizers in turn
        ([*iteration(2, 100, 1, 2), *iteration(2, 200, 2, 1), *iteration(2, 300, 3, 2)], [begins(2, 410), ends(2, 420)],
         None),
    ],
)  # fmt: skip
def test_part_of_an_iteration(
    before: list[Rows], since: list[Rows], expected: tuple[str, int | None] | None, whole: bool
) -> None:
    assert part(*before, *since, whole=whole) == expected


def test_what_is_not_known_is_not_said() -> None:
    assert part(*THREE, rank=3) is None
    assert part(*THREE, rank=99) is None
    # Without a step, nothing is known
    assert part(begins(2, 10), ends(2, 20), begins(2, 30)) is None


def test_pass_of_an_earlier_process_is_not_of_this_one() -> None:
    # GIVEN a rank that was started again, and a pass of its earlier process that is reported late
    store, node = Store(), Node("a:1", list(range(8)), 8).comm(PIPELINE)
    store.feed(node.batch(1.0, np.concatenate(THREE)), 1.0)
    node.is_(2, ProcessState.SLEEPING, pid=999, created_ns=500 * MS)
    store.feed(node.batch(2.0, begins(2, 410)), 2.0)
    assert store.passes.part_of(2, store.ordinal(2)) is None


@pytest.mark.parametrize("seed", range(20))
def test_portions_make_no_difference(seed: int) -> None:
    # GIVEN passes and steps of two ranks THEN it is the same however they are told
    rng = np.random.default_rng(seed)
    rows: list[Rows] = []
    make: list[Callable[[int, float], Rows]] = [begins, ends]
    for rank in (2, 4):
        at = 10.0
        for number in range(1, int(rng.integers(2, 7))):
            for _ in range(int(rng.integers(1, 4))):
                rows += [one(rank, at + 5 * k) for k, one in enumerate(make)]
                at += 20
            rows.append(step(rank, at, number))
            at += 10
        rows += [begins(rank, at)] * bool(rng.integers(2))
    for rank in (2, 4):
        assert part(*rows, rank=rank, whole=True) == part(*rows, rank=rank, whole=False)


def receives(rank: int, source: int, at_ms: float, counter: int) -> Rows:
    """A message from a place of the pipeline."""
    at_ns = int(at_ms * MS)
    return records(rank, 7, counter, 1, kind=Kind.RECV, peer=source, t_issue_ns=at_ns, t_end_ns=at_ns + 1)


def turn(at_ms: float, number: int, batches: int = 3) -> list[Rows]:
    """An iteration of rank 2, in the middle of a pipeline where each rank holds one stage: all forward passes first."""
    found = []
    for k in range(batches):
        found += [receives(2, 0, at_ms + 4 * k, k), sends(2, 2, at_ms + 4 * k + 2, k)]
    for k in range(batches):
        found += [begins(2, at_ms + 40 + 10 * k), ends(2, at_ms + 45 + 10 * k)]
    return [*found, step(2, at_ms + 80, number)]


STAGE = [*turn(100, 1), *turn(200, 2), *turn(300, 3)]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ([], ("iteration start", None)),
        ([receives(2, 0, 401, 1)], ("forward", 0)),
        ([receives(2, 0, 401, 1), sends(2, 2, 403, 1), receives(2, 0, 405, 2)], ("forward", 1)),
        ([row for k in range(3) for row in turn(400, 4)[2 * k : 2 * k + 2]], None),  # all forward passes are over
        ([*turn(400, 4)[:7]], ("backward", 0)),
        ([*turn(400, 4)[:9]], ("backward", 1)),
        ([*turn(400, 4)[:12]], ("optimizer", None)),
    ],
)
def test_microbatch_of_a_rank_that_holds_one_stage(
    since: list[Rows], expected: tuple[str, int | None] | None, whole: bool
) -> None:
    assert part(*STAGE, *since, whole=whole) == expected


def test_no_microbatch_where_ranks_hold_several_stages() -> None:
    # GIVEN a last rank that sends before its first pass: what it has done goes on to another stage
    last = [sends(6, 0, 110, 1), begins(6, 120), ends(6, 130), step(6, 180, 1)]
    again = [sends(6, 0, 210, 2), begins(6, 220), ends(6, 230), step(6, 280, 2)]
    assert part(*last, *again, *STAGE, receives(2, 0, 401, 1)) == ("forward", None)


@pytest.mark.parametrize(("is_from_next", "expected"), [(False, ("forward", 1)), (True, ("backward", 0))])
def test_part_of_a_message_that_does_not_come(is_from_next: bool, expected: tuple[str, int]) -> None:
    store, node = Store(), Node("a:1", list(range(8)), 8).comm(PIPELINE)
    rows = numbered([*STAGE, receives(2, 0, 401, 1), sends(2, 2, 403, 1)])
    store.feed(node.batch(0.1), 0.1)
    store.feed(node.batch(1.0, np.concatenate(rows)), 1.0)
    assert store.passes.part_of_message(2, is_from_next=is_from_next) == expected
    assert store.passes.part_of_message(3, is_from_next=is_from_next) is None
