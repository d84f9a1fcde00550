"""In which part of its iteration a rank stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from batches import Node, comm_info, records

from whichrank.locate.interleaving import Interleaving
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import INFLIGHT_REPORTED, RECORD_REPORTED, ProcessState
from whichrank.store.pass_counts import SIGN
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


def iteration(rank: int, at_ms: float, number: int, passes: int, apart_ms: float = 10) -> list[Rows]:
    """Passes of 10 ms each, so far apart, and a step."""
    each_ms = 10 + apart_ms
    found = [one(rank, at_ms + each_ms * k + 10 * n) for k in range(passes) for n, one in enumerate((begins, ends))]
    return [*found, step(rank, at_ms + each_ms * passes, number)]


THREE = [*iteration(2, 100, 1, 3), *iteration(2, 200, 2, 3), *iteration(2, 300, 3, 3)]
"""Gradients of three microbatches are added up; at 400 ms the next iteration is under way."""
LOSSES = [row for at in range(3) for row in iteration(2, 100 * (at + 1), at + 1, 3, apart_ms=0.2)]
"""Three losses, one goes backward right after the other."""
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
        (LOSSES, [begins(2, 410), ends(2, 420), begins(2, 420.2)], ("backward", None)),
        (LOSSES, [begins(2, 410), ends(2, 420)], ("forward", None)),
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


@pytest.mark.parametrize(("with_next", "expected"), [(False, ("forward", 1)), (True, ("backward", 0))])
def test_part_of_a_message_that_does_not_come(with_next: bool, expected: tuple[str, int]) -> None:
    store, node = Store(), Node("a:1", list(range(8)), 8).comm(PIPELINE)
    rows = numbered([*STAGE, receives(2, 0, 401, 1), sends(2, 2, 403, 1)])
    store.feed(node.batch(0.1), 0.1)
    store.feed(node.batch(1.0, np.concatenate(rows)), 1.0)
    assert store.passes.part_of_message(2, with_next=with_next) == expected
    assert store.passes.part_of_message(3, with_next=with_next) is None


def of_interleaved(schedule: Interleaving, place: int, at_ms: float, counters: Counter[tuple[str, int]]) -> list[Rows]:
    """What a rank of a pipeline does in an iteration, a millisecond each; its rank is twice its place."""
    rank, last = 2 * place, schedule.ranks * schedule.stages_per_rank - 1
    found = list[Rows]()

    def message(make: Callable[[int, int, float, int], Rows], peer: int) -> None:
        counters[make.__name__, peer] += 1
        found.append(make(rank, peer, at_ms + len(found), counters[make.__name__, peer]))

    for is_forward, stage, _ in schedule.order(place).blocks:
        ahead = 1 if is_forward else -1
        if 0 <= stage - ahead <= last:
            message(receives, (stage - ahead) % schedule.ranks)
        if not is_forward:
            found += [begins(rank, at_ms + len(found)), ends(rank, at_ms + len(found) + 1)]
        if 0 <= stage + ahead <= last:
            message(sends, (stage + ahead) % schedule.ranks)
    return found


def parts_of(schedule: Interleaving, place: int) -> list[tuple[str, int] | None]:
    """What the rank is in after each of these, or waits for in a message; None where nothing is to be said."""
    last, found = schedule.ranks * schedule.stages_per_rank - 1, list[tuple[str, int] | None]()
    for is_forward, stage, batch in schedule.order(place).blocks:
        part = "forward" if is_forward else "backward", batch
        ahead = 1 if is_forward else -1
        found += [part] * (0 <= stage - ahead <= last)
        found += [] if is_forward else [part, None]
        found += [None] * (0 <= stage + ahead <= last)
    return found


@pytest.mark.parametrize(
    ("schedule", "in_flight", "description"),
    [
        *((Interleaving(2, 2, 4), is_open, "mesh_pp") for is_open in (False, True)),
        (Interleaving(2, 2, 8), False, "mesh_pp"),
        (Interleaving(4, 2, 8), True, "mesh_pp"),
        (Interleaving(4, 3, 4), True, "mesh_pp"),
        (Interleaving(4, 2, 4), True, "default_pg"),
        (Interleaving(4, 1, 4), True, "default_pg"),
        (Interleaving(2, 1, 4), False, "undefined"),
    ],
)
def test_parts_of_a_rank_whose_schedule_is_known(schedule: Interleaving, in_flight: bool, description: str) -> None:
    # GIVEN a pipeline in its fourth iteration, told event by event
    pipeline = comm_info(7, list(range(0, 2 * schedule.ranks, 2)), description)
    counters = [Counter[tuple[str, int]]() for _ in range(schedule.ranks)]
    for place in range(schedule.ranks):
        store, node = Store(), Node("a:1", list(range(8)), 8).comm(pipeline)
        store.feed(node.batch(0.1), 0.1)
        before = [
            row
            for number in range(1, 4)
            for at in range(schedule.ranks)
            for row in (
                *of_interleaved(schedule, at, 1000 * number, counters[at]), step(2 * at, 1000 * number + 900, number)
            )
        ]  # fmt: skip
        now = of_interleaved(schedule, place, 4000, counters[place])
        rows = numbered([*before, *now])
        store.feed(node.batch(1.0, np.concatenate(rows[: len(before)])), 1.0)
        flying: list[Rows] = []
        for number, (row, part) in enumerate(zip(rows[len(before) :], parts_of(schedule, place), strict=True)):
            kind, peer = int(row["row"]["kind"][0]), int(row["row"]["peer"][0])
            with_next = place == 0 if schedule.ranks == 2 else (peer - place) % schedule.ranks == 1
            if kind == Kind.RECV:  # THEN what it waits for is known
                assert store.passes.part_of_message(2 * place, with_next=with_next) == part
            flying += [row] if in_flight and kind == Kind.SEND else []
            told = np.zeros(0, RECORD_REPORTED) if flying and flying[-1] is row else row
            store.feed(node.batch(2.0 + number, told, inflight=in_flight_rows(flying)), 2.0 + number)
            if part is not None and (kind != Kind.RECV or part[0] == "forward"):  # AND what it is in
                assert store.passes.part_of(2 * place, int(row["row"]["ordinal"][0])) == part
        if flying:  # WHEN all messages are over at last, THEN none counts twice: the next iteration goes on as usual
            store.feed(node.batch(900.0, np.concatenate(flying)), 900.0)
            again = numbered([*rows, step(2 * place, 4900, 4), begins(2 * place, 5000)])[-2:]
            store.feed(node.batch(901.0, np.concatenate(again)), 901.0)
            assert store.passes._counts.last[2 * place, SIGN] == store.passes._counts.before[2 * place, SIGN]


def in_flight_rows(rows: list[Rows]) -> bytes:
    """Messages that were sent and have not been received."""
    found = np.zeros(len(rows), INFLIGHT_REPORTED)
    for reported, row in zip(found, rows, strict=True):
        reported["rank"], reported["comm"] = row["rank"][0], row["comm"][0]
        for name in ("counter", "kind", "peer", "ordinal", "t_issue_ns"):
            reported["row"][name] = row["row"][name][0]
    return found.tobytes()


def test_nothing_is_said_of_an_order_that_is_of_no_schedule() -> None:
    # GIVEN ranks that hold two stages each, the last of which goes backward in another order than in any schedule
    schedule, pipeline = Interleaving(4, 2, 4), comm_info(7, [0, 2, 4, 6], "mesh_pp")
    for is_usual in (True, False):
        counters = [Counter[tuple[str, int]]() for _ in range(4)]
        store, node = Store(), Node("a:1", list(range(8)), 8).comm(pipeline)
        store.feed(node.batch(0.1), 0.1)
        rows = list[Rows]()
        for number in range(1, 4):
            for place in range(4):
                mine = of_interleaved(schedule, place, 1000 * number, counters[place])
                if place == 3 and not is_usual:
                    marks = [row for row in mine if row["row"]["kind"][0] == Kind.PASS]
                    for at, row in enumerate(marks):  # all passes behind all messages
                        row["row"]["t_issue_ns"] = (1000 * number + 800 + at // 2 * 2) * MS
                        row["row"]["t_end_ns"] = (1000 * number + 801 + at) * MS * (at % 2)
                rows += [*mine, step(2 * place, 1000 * number + 900, number)]
        rows = numbered([*rows, *of_interleaved(schedule, 2, 4000, counters[2])[:1]])
        store.feed(node.batch(1.0, np.concatenate(rows)), 1.0)
        message = store.passes.part_of_message(4, with_next=False)
        assert (message, store.passes.part_of(4, int(rows[-1]["row"]["ordinal"][0]))) == (
            (("forward", 1), ("forward", 0)) if is_usual else (None, ("forward", None))
        )


def test_phase_of_a_message_that_a_rank_sends() -> None:
    store, node = Store(), Node("a:1", list(range(8)), 8).comm(PIPELINE)
    store.feed(node.batch(0.1), 0.1)
    store.feed(node.batch(1.0, np.concatenate(numbered(STAGE))), 1.0)
    assert store.passes.part_of_message(2, with_next=True, is_sent=True) == ("forward", None)
    assert store.passes.part_of_message(2, with_next=False, is_sent=True) == ("backward", None)


@pytest.mark.parametrize("place_of_peer", [2, 3])
def test_messages_on_a_group_without_a_description_may_be_of_a_pipeline(place_of_peer: int) -> None:
    # GIVEN a rank that sends to a neighbour, or to another rank, on a group of which nobody says what it is for
    store, node = Store(), Node("a:1", list(range(8)), 8).comm(comm_info(7, [0, 2, 4, 6], "default_pg"))
    rows = list[Rows]()
    for number in range(1, 5):
        rows += [sends(2, place_of_peer, 100 * number, number), *iteration(2, 100 * number + 10, number, 3)]
    store.feed(node.batch(0.1), 0.1)
    store.feed(node.batch(1.0, np.concatenate(numbered(rows[:-4]))), 1.0)
    # THEN the second of three passes has no microbatch: one of a later stage may have come before
    assert store.passes.part_of(2, store.ordinal(2)) == ("backward", None)
    assert store.passes.part_of_message(2, with_next=True) is None


@pytest.mark.parametrize("description", ["mesh_pp", "default_pg"])
def test_a_group_that_is_called_a_pipeline_comes_before_others(description: str) -> None:
    # GIVEN a pipeline, and messages on another group
    other = comm_info(9, [0, 2, 4, 6], description)
    store, node = Store(), Node("a:1", list(range(8)), 8).comm(PIPELINE, other)
    beside = [one.copy() for one in (sends(2, 2, 401.2, 1), sends(2, 2, 401.4, 2), sends(2, 3, 401.6, 1))]
    for row in beside:
        row["comm"] = 9
    store.feed(node.batch(0.1), 0.1)
    rows = numbered([*STAGE, receives(2, 0, 401, 1), *beside, sends(2, 2, 403, 1), receives(2, 0, 405, 2)])
    store.feed(node.batch(1.0, np.concatenate(rows)), 1.0)
    part = store.passes.part_of(2, int(rows[-1]["row"]["ordinal"][0]))
    # THEN these count only where that may be the pipeline as well
    assert part == (("forward", 1) if description == "default_pg" else None)
