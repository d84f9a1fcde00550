"""While a rank is late, the rings of the others say on which operation their threads are blocked, and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import VARIANTS, Job, Ring, flags, forked

from whichrank.model.codes import Flag, Status, WaitHow
from whichrank.model.kinds import Kind

pytestmark = pytest.mark.integration


def blocked_on(ring: Ring, kind: Kind, count: int | None = None) -> Any:
    """The wait row of the thread that is blocked on such an operation."""
    found = [row for row in ring.waits if row["kind"] == kind and count in (None, row["count"])]
    return found[0] if found else None


def flies(ring: Ring, kind: Kind, count: int | None = None) -> Any:
    found = [row for row in ring.in_flight if row["kind"] == kind and count in (None, row["count"])]
    return found[0] if found else None


def in_order(
    job: Job, gate: str, kinds: dict[int, Kind], count: int | None, how: WaitHow, *, one_ahead: bool = False
) -> list[Ring]:
    """Rings in which ranks 0 and 1 wait as reported and rank 2 is in no operation; then the gate is opened."""

    def is_in_order(rings: list[Ring]) -> bool:
        waits = all(blocked_on(rings[rank], kind, count) for rank, kind in kinds.items())
        is_there = not one_ahead or issued(rings[0]) == issued(rings[1]) == issued(rings[2]) + 1
        return waits and is_there and not len(rings[2].waits) and not len(rings[2].in_flight)

    rings = job.until(is_in_order, gate)
    for rank, kind in kinds.items():
        wait = blocked_on(rings[rank], kind, count)
        assert wait["how"] == how
        assert wait["tid"] == rings[rank].pid, "it is the main thread"
        row = flies(rings[rank], kind, count)
        assert row["counter"] == wait["counter"]
        assert row["comm_id"] == wait["comm_id"]
        assert row["wait_since_ns"] > 0
    job.open_gate(gate)
    return rings


def is_awaited_unseen(ring: Ring) -> bool:
    """DDP's bucket is in flight, and its future was taken, which comes a moment after the issue."""
    row = flies(ring, Kind.ALL_REDUCE, 15)
    return row is not None and bool(flags(row) & Flag.FUTURE_TAKEN)


def none_waits(rings: list[Ring], is_there: Callable[[Ring], bool]) -> bool:
    """All have come there, and no thread is blocked: a wait ends a moment after its operation has a record."""
    return all(is_there(ring) and not ring.waits for ring in rings)


@pytest.mark.parametrize("variant", VARIANTS)
def test_who_is_blocked_on_what(variant: str, tmp_path: Path, nursery: Path) -> None:
    both = dict.fromkeys((0, 1), Kind.ALL_REDUCE)
    with forked("blocked", 3, tmp_path, variant, nursery) as job:
        # Those who entered are one operation ahead of the one who has not: that is what a verdict rests on.
        rings = in_order(job, "wait", both, 21, WaitHow.CALL, one_ahead=True)
        signatures = {int(flies(ring, Kind.ALL_REDUCE)["signature"]) for ring in rings[:2]}
        assert len(signatures) == 1
        assert signatures != {0}

        in_order(job, "wait_tensor", both, 22, WaitHow.CALL)
        in_order(job, "compiled", both, 31, WaitHow.CALL)
        in_order(job, "monitored_barrier", dict.fromkeys((0, 1), Kind.MONITORED_BARRIER), None, WaitHow.ENTRY)

        rings = in_order(job, "recv", {0: Kind.RECV, 1: Kind.SEND}, None, WaitHow.CALL)
        assert (blocked_on(rings[0], Kind.RECV)["peer"], blocked_on(rings[0], Kind.RECV)["tag"]) == (2, 7)
        assert (blocked_on(rings[1], Kind.SEND)["peer"], blocked_on(rings[1], Kind.SEND)["count"]) == (2, 24)

        # DDP's reducer waits on the future, out of sight: the operation says so itself.
        job.until(lambda all_: none_waits(all_[:2], is_awaited_unseen), "DDP's bucket and its future")
        job.open_gate("backward")

        job.until(lambda all_: none_waits(all_[:2], lambda ring: polled(ring, 25)), "a poll")
        job.open_gate("polled")

        # In flight is not blocked; and other groups go on.
        rings = job.until(lambda all_: none_waits(all_[:2], passed_by), "the posted receive")
        for ring in rings[:2]:
            assert flies(ring, Kind.ALL_REDUCE, 27) is not None
        job.open_gate("posted")
        rings = job.finish()
    for ring in rings:
        assert ring.in_flight == ring.waits == []
        dropped = [row for row in ring.of_kind(Kind.RECV) if row["status"] == Status.DROPPED]
        assert len(dropped) == (0 if ring.rank == 2 else 1)
        longest = max(int(row["wait_us"]) for row in ring.of_kind(Kind.ALL_REDUCE) if row["count"] == 21)
        assert ring.rank == 2 or longest > 0


def issued(ring: Ring) -> int:
    return int(ring.comms["default_pg"]["issued"]) if "default_pg" in ring.comms else 0


def polled(ring: Ring, count: int) -> bool:
    row = flies(ring, Kind.ALL_REDUCE, count)
    return row is not None and row["polled_ns"] > row["t_issue_ns"]


def passed_by(ring: Ring) -> bool:
    others = [row for row in ring.of_kind(Kind.ALL_REDUCE) if row["count"] == 28]
    return flies(ring, Kind.RECV, 26) is not None and len(others) == 5
