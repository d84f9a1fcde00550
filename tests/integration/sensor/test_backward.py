"""What each backward pass is given is reported, by its shapes or by the program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import VARIANTS, forked

from whichrank.model.kinds import Kind

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("variant", VARIANTS)
def test_backward_passes_report_what_they_are_given(variant: str, tmp_path: Path, nursery: Path) -> None:
    with forked("backward", 2, tmp_path, variant, nursery) as job:
        rings = job.finish()

    for ring in sorted(rings, key=lambda ring: ring.rank):
        rows = np.array([row for row in ring.records if row["kind"] == Kind.WORK])
        length = 5 + ring.rank
        once = [(3 * length * 50, length), (4 * 7 * 16, 7), (2 * 8 * 50, 8)]
        others = [(24, 3), (54, 0), (36, 0), (8, 2), (123, 45)]
        assert list(zip(rows["count"].tolist(), rows["counter"].tolist(), strict=True)) == [*once, *once, *others]
        assert (np.diff(rows["t_issue_ns"].astype(np.int64)) >= 0).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_begin_and_end_of_each_pass_are_reported(variant: str, tmp_path: Path, nursery: Path) -> None:
    with forked("backward", 2, tmp_path, variant, nursery) as job:
        rings = job.finish()

    for ring in rings:
        rows = np.array([row for row in ring.records if row["kind"] == Kind.PASS])
        begins, ends = rows[rows["t_end_ns"] == 0], rows[rows["t_end_ns"] > 0]
        # THEN each pass has both, the one that raises too, and none begins before the last has ended
        assert len(begins) == len(ends) > 0
        assert begins["t_issue_ns"].tolist() == ends["t_issue_ns"].tolist()
        assert (ends["t_end_ns"] >= ends["t_issue_ns"]).all()
        assert (begins["t_issue_ns"][1:] >= ends["t_end_ns"][:-1]).all()
