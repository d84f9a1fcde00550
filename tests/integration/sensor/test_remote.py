"""While a remote call is not answered, the ring of the caller says which thread waits, and for which rank."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from jobs import PROGRAMS, VARIANTS, Ring, launched, started

from whichrank.model.kinds import Kind
from whichrank.testbed.demo.ports import free_port

pytestmark = pytest.mark.integration


def calls(ring: Ring, since_ns: int = 0) -> list[tuple[int, int]]:
    """Thread and peer of each wait on a remote call that began after this time."""
    rows = [row for row in ring.waits if row["kind"] == Kind.REMOTE_CALL and row["since_ns"] > since_ns]
    return [(int(row["tid"]), int(row["peer"])) for row in rows]


@pytest.mark.parametrize("variant", VARIANTS)
def test_who_waits_for_whose_answer(variant: str, tmp_path: Path) -> None:
    # GIVEN two ranks under torchrun that make no process group
    with launched("remote", 2, tmp_path, variant) as job:
        opened_ns = 0
        for kind in ("sync", "async", "then", "all", "to_here", "method", "methods"):
            # WHEN rank 0 waits for rank 1 in a call of this kind
            rings = job.until(lambda all_, ns=opened_ns: calls(all_[0], ns) and not calls(all_[1]), kind)
            # THEN its main thread is marked as one that waits for rank 1
            assert calls(rings[0]) == [(rings[0].pid, 1)], kind
            opened_ns = time.monotonic_ns()
            job.open_gate(kind)
        # AND nothing is left of it, nor was an operation counted
        rings = job.finish()
    assert [calls(ring) for ring in rings] == [[], []]
    assert all(int(ring.header["ordinal"]) == 0 for ring in rings)


def test_rpc_says_the_rank_where_no_launcher_does(tmp_path: Path) -> None:
    # GIVEN two processes that know their rank only from their own arguments
    program = str(PROGRAMS / "remote.py")
    both = f"{sys.executable} {program} 1 & exec {sys.executable} {program} 0"
    with started(["sh", "-c", both], tmp_path, "cpp", 2, MASTER_PORT=str(free_port())) as job:
        # THEN both have a ring of that rank
        rings = job.until(lambda all_: calls(all_[0]) and all_[1].rank == 1, "two ranks")
        assert [(ring.rank, int(ring.header["world_size"])) for ring in rings] == [(0, 2), (1, 2)]
