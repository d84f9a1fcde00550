"""In which part of its iteration a rank stands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from batches import Node, comm_info, records

from whichrank.model.kinds import Kind
from whichrank.model.telemetry import RECORD_REPORTED
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


def part(*rows: Rows, rank: int = 2, whole: bool = True) -> tuple[str, int | None] | None:
    """Told at once, or one by one."""
    store, node = Store(), Node("a:1", list(range(8)), 8).comm(PIPELINE)
    store.feed(node.batch(0.1), 0.1)
    parts = [np.concatenate(rows)] if whole else list(rows)
    for number, one in enumerate(parts):
        store.feed(node.batch(1.0 + number, one), 1.0 + number)
    return store.passes.part_of(rank)


BEFORE = [begins(2, 10), ends(2, 20), begins(2, 30), ends(2, 40), begins(2, 50), ends(2, 60), step(2, 70, 1)]
"""An iteration of three passes."""


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ([], ("forward", 0)),
        ([sends(2, 2, 75, 1)], ("forward", 1)),
        ([sends(2, 2, 75, 1), sends(2, 2, 76, 2), sends(2, 2, 77, 3)], ("forward", 2)),
        ([sends(2, 0, 75, 1)], ("forward", 0)),
        ([begins(2, 80)], ("backward", 0)),
        ([begins(2, 80), ends(2, 90)], ("forward", 1)),
        ([begins(2, 80), ends(2, 90), begins(2, 95)], ("backward", 1)),
        ([begins(2, 80), ends(2, 90), begins(2, 95), ends(2, 96), begins(2, 97), ends(2, 98)], ("optimizer", None)),
        ([begins(2, 80), ends(2, 90), step(2, 100, 2)], ("forward", None)),
        ([begins(2, 80), ends(2, 90), begins(2, 91), ends(2, 92), step(2, 100, 2), begins(2, 101)], ("backward", 0)),
    ],
)
def test_part_of_an_iteration(since: list[Rows], expected: tuple[str, int | None], whole: bool) -> None:
    assert part(*BEFORE, *since, whole=whole) == expected


def test_single_microbatch_has_no_number() -> None:
    assert part(begins(2, 10), ends(2, 20), step(2, 70, 1), begins(2, 80)) == ("backward", None)
    assert part(begins(2, 10), ends(2, 20), step(2, 70, 1)) == ("forward", None)


def test_what_is_not_known_is_not_said() -> None:
    assert part(*BEFORE, rank=3) is None
    assert part(*BEFORE, rank=99) is None
    assert part(begins(2, 10), ends(2, 20)) is None
    assert part(begins(2, 10)) == ("backward", None)


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
