"""A demo or a bench that is ended from outside leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rank_process import eventually

pytestmark = pytest.mark.integration

RANKS = 8


def processes_of(mark: str) -> list[str]:
    """Command lines of the live processes whose environment has this mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark.encode() in (folder / "environ").read_bytes().split(b"\0")
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marked:
            found.append(line)
    return found


@pytest.mark.parametrize("arguments", [["demo"], ["bench", "demo", "--seeds", "1", "--results", "results.jsonl"]])
def test_sigterm_ends_the_job_too(arguments: list[str], tmp_path: Path) -> None:
    # GIVEN a healthy job of the demo, under way
    process = subprocess.Popen(
        [sys.executable, "-m", "whichrank", *arguments, "--fault", "none"], cwd=tmp_path, start_new_session=True,
        env={**os.environ, "MARK": str(tmp_path), "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: len(processes_of(f"MARK={tmp_path}")) > RANKS, 60)
        # WHEN it is ended as a scheduler does it THEN it says so by its exit code, and nothing is left
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        eventually(lambda: not processes_of(f"MARK={tmp_path}"))
    finally:
        process.kill()
