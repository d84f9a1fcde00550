"""`whichrank validate` on a run that goes on: training waits, its ranks are measured, and it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("outside")))
from watched import RANKS, Watched

from whichrank.testbed.demo import workloads

pytestmark = pytest.mark.integration

HEALTHY, SLOW, NOT_KNOWN = 0, 4, 5
PAUSED = "training is paused"


def command(job: Watched, *options: str) -> list[str]:
    run = next(job.folder.glob("whichrank-out/*"))
    return [sys.executable, "-m", "whichrank", "validate", str(run), "--json", *options]


def validate(job: Watched, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(job, *options), capture_output=True, text=True, timeout=120, check=False)


def steps_said(job: Watched) -> int:
    return len(job.said("stdout").splitlines())


def test_running_job_is_measured_and_goes_on(tmp_path: Path) -> None:
    script = Path(workloads.__path__[0]) / "ddp.py"
    with Watched(tmp_path, ["torchrun", "--nproc-per-node", str(RANKS), str(script), "--steps", "100000"]) as job:
        job.until(lambda: steps_said(job) > 3, "steps")
        # WHEN it is measured twice, once with some ranks only
        for options, ranks in (((), RANKS), (("--ranks", "0,1", "--sizes", "1"), 2)):
            done = validate(job, *options)
            said = json.loads(done.stdout)
            # THEN all of them are, and nothing went wrong
            assert said["problem"] == "", done
            assert said["problems"] == {}
            assert said["measured_ranks"] == ranks
            assert said["measured_links"] >= RANKS - 1  # those in use, or a ring
            assert 0 < said["paused_s"] <= 10
            assert done.returncode in (HEALTHY, SLOW, NOT_KNOWN)
        # AND training goes on
        before = steps_said(job)
        job.until(lambda: steps_said(job) > before + 1, "more steps")
        assert "whichrank: validation: " in job.said("stderr")
        # AND nothing was reported of it as a fault
        assert job.alerts() == []

        # WHEN a rank dies while all are kept
        said = job.said("stderr").count(PAUSED)
        with subprocess.Popen(command(job), stdout=subprocess.PIPE, text=True) as asking:
            job.until(lambda: job.said("stderr").count(PAUSED) > said, "the pause")
            os.kill(job.pids()[2], signal.SIGKILL)
            answer = json.loads(asking.communicate(timeout=120)[0])
        # THEN nobody waits for it, and it is named as ever
        assert answer["problem"] != ""
        assert asking.returncode == NOT_KNOWN
        job.until(lambda: any(culprit.rank == 2 for word in job.alerts() for culprit in word.culprits), "an alert")
        job.wait()


def test_run_that_is_not_there_is_said(tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "whichrank", "validate", str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "no folder of a run" in done.stderr
