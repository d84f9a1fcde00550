"""A timeout that is changed while the job runs is reported as it holds: of the group, in flight, and of a wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import VARIANTS, Ring, forked

from whichrank.model.codes import Status
from whichrank.model.kinds import Kind

pytestmark = pytest.mark.integration

DEFAULT_S = 1800
LONGEST_MS = 0xFFFFFFFF


def row_of(rows: list[Any], kind: Kind, count: int) -> Any:
    found = [row for row in rows if row["kind"] == kind and row["count"] == count]
    return found[0] if found else None


def reported_s(ring: Ring, kind: Kind, count: int) -> tuple[float, float]:
    """The timeout of an operation in seconds, in flight and of the thread that is blocked on it."""
    rows = (row_of(ring.in_flight, kind, count), row_of(ring.waits, kind, count))
    return tuple(int(row["timeout_ms"]) / 1000 for row in rows)


@pytest.mark.parametrize("variant", VARIANTS)
def test_timeout_that_holds_is_reported(variant: str, tmp_path: Path, nursery: Path) -> None:
    with forked("timeouts", 2, tmp_path, variant, nursery) as job:

        def blocked(kind: Kind, count: int) -> Ring:
            return job.until(lambda rings: row_of(rings[0].waits, kind, count) is not None, f"{kind} of {count}")[0]

        # GIVEN an operation issued before the change, THEN it keeps the timeout that it was issued with
        ring = blocked(Kind.ALL_REDUCE, 20)
        assert reported_s(ring, Kind.ALL_REDUCE, 20) == (1001, 1001)
        # AND each communicator has the one that was set, in whichever way; the others keep theirs
        timeouts_ms = {name: int(comm["timeout_ms"]) for name, comm in ring.comms.items()}
        assert timeouts_ms == {
            "default_pg": 2_001_000,
            "mesh_pp": DEFAULT_S * 1000,  # a mesh does not inherit
            "mesh_dp": 2_001_000,
            "KEPT": 1_002_000,
            "FUNCTION": 2_001_000,
            "METHOD": 2_004_000,
            "BACKEND": 2_005_000,
            "DEFAULT": LONGEST_MS,  # a year does not fit
        }
        job.open_gate("default")
        # WHEN operations are issued after it, THEN they have the new one, or their own
        for gate, count in (("function", 22), ("mesh", 23)):
            assert reported_s(blocked(Kind.ALL_REDUCE, count), Kind.ALL_REDUCE, count) == (2001, 2001)
            job.open_gate(gate)
        assert reported_s(blocked(Kind.BARRIER, 1), Kind.BARRIER, 1) == (3001, 3001)
        job.open_gate("own")
        # AND a receive of Gloo keeps the one that its group was made with
        assert reported_s(blocked(Kind.RECV, 24), Kind.RECV, 24) == (1003, 1003)
        job.open_gate("send")
        # AND that is what torch does: the program would hang for a quarter of an hour if it did not
        rings = job.finish()
    ends = [int(row["status"]) for row in rings[0].records if row["count"] in (25, 26)]
    assert ends == [Status.FAILED] * 2
