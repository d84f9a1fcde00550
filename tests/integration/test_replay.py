"""A recorded run says the same when it is gone through again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

UNIT = Path(__file__).parents[1] / "unit"
RANK = f"{sys.executable} {UNIT / 'ring_writer.py'} $WHICHRANK_DIR"
DIES = f"{sys.executable} {UNIT / 'rank_launcher.py'} 7 {RANK} 0 2"
WAITS = f"(printf 'comm dp 1 0,1\\nop 0 5\\n'; sleep 4) | {RANK} 1 2"


def whichrank(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "WHICHRANK_SHM": str(folder / "shm"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "whichrank", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("job", "code"), [(f"{WAITS} & {DIES}; wait", 3), (WAITS, 0)])
def test_a_replay_says_what_was_said_live(tmp_path: Path, job: str, code: int) -> None:
    # GIVEN a recorded run
    whichrank(tmp_path, "run", "--record", "--output", "out", "--", "sh", "-c", job)
    live = whichrank(tmp_path, "why", "out", "--json")
    assert live.returncode == code, live.stderr
    tape = tmp_path / "out" / "telemetry.tape"
    assert tape.stat().st_mode & 0o777 == 0o600
    # THEN a replay says the same, and says that it is
    done = whichrank(tmp_path, "replay", "out", "--json")
    assert (done.returncode, done.stderr) == (code, "whichrank: as it was said live\n")
    assert json.loads(done.stdout) == json.loads(live.stdout)
    # AND methods of others can go through it
    if code:
        done = whichrank(tmp_path, "replay", "out", "--methods", "ras,ccl-d", "--json")
        assert (done.returncode, set(json.loads(done.stdout))) == (0, {"ras", "ccl-d"})
    # AND of a tape that was cut what is whole is used
    tape.write_bytes(tape.read_bytes()[:-5])
    done = whichrank(tmp_path, "replay", str(tape))
    assert "the recording ends within an entry; what is whole was used" in done.stderr
    assert "Traceback" not in done.stderr
