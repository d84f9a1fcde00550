"""Interleaved pipelines of torch: phase and microbatch of a rank that hangs, of a schedule that nobody has named."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched import Watched, named

from whichrank.testbed.bench.launch import preloaded as preloaded_launcher

PROGRAM = Path(__file__).parent / "programs" / "looped.py"

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("ranks", "phase", "stage", "microbatch"),
    [(2, "forward", 2, 3), (2, "backward", 1, 2), (4, "forward", 6, 1), (4, "backward", 3, 3)],
)
def test_part_of_a_rank_that_hangs_in_an_interleaved_pipeline(
    ranks: int, phase: str, stage: int, microbatch: int, tmp_path: Path, nursery: Path
) -> None:
    # GIVEN a rank that falls asleep in a pass of one of its stages
    launcher = [*preloaded_launcher(nursery), "--nproc", str(ranks), "--pids", "pids", "--"]
    command = [*launcher, str(PROGRAM), phase, str(stage), str(microbatch)]
    with Watched(tmp_path, command, ranks) as job:
        job.until(lambda: bool(job.alerts()), "an alert")
        alert = job.alerts()[-1]
        # THEN it is named, and so is the pass
        assert named(job.words()) == {stage % ranks}, job.log()
        assert alert.stage is not None
        assert (alert.stage.phase, alert.stage.microbatch) == (phase, microbatch), job.log()
