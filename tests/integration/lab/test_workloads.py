"""The workloads train, each under a launcher as it is, and are left bitwise unchanged by being watched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from whichrank.testbed.bench.launch import preloaded
from whichrank.testbed.lab.programs import PROGRAMS

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("workload", PROGRAMS)
def test_workload_trains_to_the_same_bits_when_it_is_watched(workload: str, tmp_path: Path, nursery: Path) -> None:
    # GIVEN four ranks of it WHEN they run by themselves, and under whichrank
    run = [sys.executable, "-m", "whichrank", "run", "--"]
    plain, watched = ran(workload, tmp_path, preloaded(nursery)), ran(workload, tmp_path, [*run, *preloaded(nursery)])
    # THEN the loss falls, and all ranks end with the same parameters both times
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", plain)]
    assert len(losses) == 2, plain
    assert losses[1] < losses[0]
    digests = sorted(re.findall(r"rank \d+ digest \w+", plain))
    assert len(digests) == 4
    assert digests == sorted(re.findall(r"rank \d+ digest \w+", watched)), watched
    assert "watched 4 ranks; no alert" in watched


def ran(workload: str, folder: Path, launcher: list[str]) -> str:
    program = PROGRAMS[workload]
    layout = ["--layout", program.layout(4).name] if program.has_layout else []
    command = [*launcher, "--nproc", "4", "--", "-m", program.module, *layout]
    done = subprocess.run(
        [*command, "--iterations", "20", "--device-ms", "2", "--digest"],
        cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_ranks_that_cannot_be_arranged_are_refused() -> None:
    assert PROGRAMS["3d"].layout(16).name == "tp2-pp4-dp2"
    assert PROGRAMS["3d"].layout(8).name == "pp4-dp2"
    assert PROGRAMS["ddp"].layout(8).name == "dp8"
    with pytest.raises(ValueError, match="this workload needs a multiple of 4 ranks, not 6"):
        PROGRAMS["3d"].layout(6)
