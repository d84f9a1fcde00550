"""While a communicator is being made, the rings of those who wait for its last member say whom they meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import VARIANTS, Ring, forked

from whichrank.model.kinds import Kind

pytestmark = pytest.mark.integration


def meets(ring: Ring) -> list[tuple[int, int, int]]:
    """First rank, stride and size of each communicator that the rank makes now."""
    rows = [row for row in ring.waits if row["kind"] == Kind.MEETING]
    return [(int(row["peer"]), int(row["tag"]), int(row["count"])) for row in rows]


@pytest.mark.parametrize("variant", VARIANTS)
def test_who_is_met(variant: str, tmp_path: Path, nursery: Path) -> None:
    with forked("meeting", 4, tmp_path, variant, nursery) as job:
        # GIVEN rank 0 that meets rank 2, which does not come, and rank 1 that makes a communicator of irregular members
        wanted = [[(0, 2, 2)], [(0, 1, 0)], [], []]
        # THEN whom rank 0 meets is known, and of rank 1 only that it waits
        job.until(lambda all_: [meets(ring) for ring in all_] == wanted, "even")
        job.open_gate("even")
        wanted = [[(0, 1, 0)], [(0, 1, 0)], [], []]
        job.until(lambda all_: [meets(ring) for ring in all_] == wanted, "some")
        job.open_gate("some")
        # AND nothing is left of it
        rings = job.finish()
    assert [meets(ring) for ring in rings] == [[]] * 4
