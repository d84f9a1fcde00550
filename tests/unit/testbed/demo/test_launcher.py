"""The preloaded launcher behaves as torchrun does; tested with programs that need no torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[4] / "src")
START = """import sys
import whichrank.testbed.demo.launcher as launcher
launcher.PRELOADED = ()
sys.exit(launcher.main(sys.argv[1:]))
"""


def run(tmp_path: Path, program: str, nproc: int = 3, *options: str) -> tuple[int, str, str]:
    with launch(tmp_path, program, nproc, *options) as process:
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err


def launch(tmp_path: Path, program: str, nproc: int = 3, *options: str) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(program)
    command = [sys.executable, "-c", START, "--nproc", str(nproc), *options, "--", str(script), "--flag"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_ranks_have_the_environment_of_torchrun(tmp_path: Path) -> None:
    # GIVEN a program that prints what it was given
    program = """import os, sys
keys = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
mine = os.getsid(0) == os.getpid()
words = [*(os.environ[key] for key in keys), __name__, str(sys.argv[1:]), str(mine)]
sys.stdout.write(" ".join(words) + "\\n")  # in one piece: three ranks share the pipe
"""
    # WHEN three ranks run it
    code, out, err = run(tmp_path, program)
    assert code == 0, err
    rows = sorted(line.split(" ", 6) for line in out.splitlines())
    # THEN they are numbered, share one port, and each has a session of its own
    assert [row[:5] for row in rows] == [[str(r), str(r), "3", "3", "127.0.0.1"] for r in range(3)], err
    assert len({row[5] for row in rows}) == 1
    assert {row[6] for row in rows} == {"__main__ ['--flag'] True"}


def test_ranks_of_another_node_come_behind_those_of_the_first(tmp_path: Path) -> None:
    program = """import os, sys
keys = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
sys.stdout.write(" ".join(os.environ[key] for key in keys) + "\\n")
"""
    where = ("--node", "1", "--nodes", "3", "--master", "10.1.2.3:29511")
    code, out, err = run(tmp_path, program, 2, *where)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["2 0 6 2 1 10.1.2.3 29511", "3 1 6 2 1 10.1.2.3 29511"]
    # AND a node or an address that cannot be is refused
    for wrong in (("--node", "1"), ("--nodes", "2", "--master", "10.1.2.3")):
        code, _, err = run(tmp_path, program, 2, *wrong)
        assert code == 2
        assert "HOST:PORT" in err


def test_all_ranks_ending_well_is_exit_code_0(tmp_path: Path) -> None:
    assert run(tmp_path, "")[0] == 0


@pytest.mark.parametrize(
    ("death", "reported"),
    [("os._exit(3)", "rank 1 exit code 3"), ("os.kill(os.getpid(), 9)", "rank 1 exit code -9"), ("1/0", "exit code 1")],
)
def test_a_failed_rank_ends_the_others_by_sigterm(tmp_path: Path, death: str, reported: str) -> None:
    program = f"""import os, signal, sys, time
def end(*_):
    sys.stdout.write(f"terminated {{os.environ['RANK']}}\\n")
    sys.stdout.flush()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
time.sleep(0.3)
if os.environ["RANK"] == "1":
    {death}
time.sleep(60)
"""
    code, out, err = run(tmp_path, program)
    assert code == 1
    assert sorted(out.split()) == ["0", "2", "terminated", "terminated"], err
    assert reported in err


def test_a_rank_that_ignores_sigterm_is_killed_after_the_timeout(tmp_path: Path) -> None:
    program = """import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ["RANK"] == "0":
    os._exit(1)
time.sleep(60)
"""
    started_s = time.monotonic()
    assert run(tmp_path, program, 2, "--shutdown-timeout-s", "0.5")[0] == 1
    assert time.monotonic() - started_s < 15


def test_an_exit_code_0_before_the_others_is_no_failure(tmp_path: Path) -> None:
    program = """import os, sys, time
if os.environ["RANK"] == "2":
    sys.exit(0)
time.sleep(0.5)
"""
    assert run(tmp_path, program)[0] == 0


def test_sigterm_is_forwarded_and_the_pids_are_written(tmp_path: Path) -> None:
    # GIVEN a running job whose pids are in a file
    pids_file = tmp_path / "pids"
    process = launch(tmp_path, "import time; time.sleep(60)", 2, "--pids", str(pids_file))
    deadline_s = time.monotonic() + 120
    while not pids_file.exists() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    pids = {int(rank): pid for rank, pid in json.loads(pids_file.read_text()).items()}
    assert sorted(pids) == [0, 1]
    # WHEN the launcher gets SIGTERM
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    # THEN it ends with 1 and no rank is left
    assert process.returncode == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())


def test_nothing_to_run_is_a_usage_error() -> None:
    command = [sys.executable, "-m", "whichrank.testbed.demo.launcher", "--nproc", "2"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert "nothing to run" in done.stderr
