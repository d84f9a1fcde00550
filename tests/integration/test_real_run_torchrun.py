"""The main command as a user types it: `whichrank run -- torchrun --nproc-per-node 4 SCRIPT`, broken from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("outside")))
from watched import RANKS, Watched, judge

from whichrank.testbed.demo import workloads

pytestmark = pytest.mark.integration

TORCHRUN_FAILED = 1
"""torchrun's exit code where a rank has failed, and where it was asked to end."""


def torchrun(folder: Path, workload: str) -> Watched:
    script = Path(workloads.__path__[0]) / f"{workload}.py"
    return Watched(folder, ["torchrun", "--nproc-per-node", str(RANKS), str(script), "--steps", "100000"])


def assert_stdout_is_the_scripts(text: str) -> None:
    """Nothing but the lines that the script prints, all of them, in order."""
    lines = text.splitlines()
    assert all(re.fullmatch(r"step \d+ loss -?\d+\.\d{4}", line) for line in lines), text
    assert [int(line.split()[1]) for line in lines] == list(range(0, 10 * len(lines), 10))


def test_stopped_rank_is_named_while_torchrun_hangs_and_its_exit_code_is_passed_on(tmp_path: Path) -> None:
    # GIVEN the main command on an ordinary script
    with torchrun(tmp_path, "ddp") as job:
        # WHEN somebody stops one rank
        struck = job.strike("stop", "torchrun")

        # THEN the rank is named in the file and on stderr, while it is stopped and the job runs
        job.until(lambda: f"whichrank: ALERT hang: rank {struck.rank}" in job.said("stderr"), "the verdict on stderr")
        assert Path(f"/proc/{struck.pid}/stat").read_text().split()[2] == "T"
        assert job.process.poll() is None
        judge(struck, job.words(), job.log())

        # WHEN the job is ended as a scheduler does it, and the stopped rank, which cannot obey, by force
        job.process.send_signal(signal.SIGTERM)
        job.until(lambda: "closing signal SIGTERM" in job.said("stderr"), "torchrun at the signal")
        os.kill(struck.pid, signal.SIGKILL)

        # THEN the exit code is torchrun's, stdout is the script's alone, and the file still names nobody else
        assert job.wait() == TORCHRUN_FAILED
        assert "got signal: 15" in job.said("stderr")
        assert_stdout_is_the_scripts(job.said("stdout"))
        judge(struck, job.words(), job.log())


def test_killed_rank_is_named_and_torchruns_exit_code_is_passed_on(tmp_path: Path) -> None:
    # GIVEN the main command on an ordinary script
    with torchrun(tmp_path, "fsdp2") as job:
        # WHEN somebody kills one rank with signal 9
        struck = job.strike("kill", "torchrun")

        # THEN torchrun ends the others and says why; its exit code and its words are passed on
        assert job.wait() == TORCHRUN_FAILED
        assert f"Signal 9 (SIGKILL) received by PID {struck.pid}" in job.said("stderr")
        assert_stdout_is_the_scripts(job.said("stdout"))

        # AND the verdict is the rank that was killed, not those that torchrun ended
        judge(struck, job.words(), job.log())
        assert f"whichrank: ALERT failure: rank {struck.rank}" in job.said("stderr")
        (summary,) = job.folder.glob("whichrank-out/*/job.json")
        found = json.loads(summary.read_text())
        assert (found["ranks"], found["exit_status"]) == (list(range(RANKS)), TORCHRUN_FAILED)
