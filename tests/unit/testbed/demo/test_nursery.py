"""A nursery's launchers do as if they were children of who asks for them; tested with programs that need no torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[4] / "src")
SERVE = """import sys
import whichrank.testbed.demo.launcher as launcher
launcher.PRELOADED = ()
from whichrank.testbed.demo import nursery
import os
nursery.main(sys.argv[1], os.getppid())
"""
WORDS = """import os, sys
words = [os.environ["RANK"], os.environ["MINE"], "THEIRS" in os.environ, os.getcwd(), sys.argv[1:]]
sys.stdout.write(" ".join(map(str, words)) + "\\n")  # in one piece: two ranks share the pipe
"""
SLEEPS = """import os, pathlib, time
pathlib.Path(os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "socket"
    environment = {**os.environ, "PYTHONPATH": SOURCE, "THEIRS": "yes"}
    command = [sys.executable, "-c", SERVE, str(path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield path
        server.kill()


def test_one_whose_parent_has_gone_before_it_began_serves_nobody(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "whichrank.testbed.demo.nursery", str(tmp_path / "socket"), "1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, (tmp_path / "socket").exists()) == (0, "", False), done.stderr


def ask(nursery: Path, folder: Path, program: str) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(program)
    command = [sys.executable, "-m", "whichrank.testbed.demo.launcher", "--nursery", str(nursery), "--nproc", "2"]
    return subprocess.Popen(
        [*command, "--", "script.py", "--flag"], cwd=folder, env={**os.environ, "PYTHONPATH": SOURCE, "MINE": "ours"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def pids_in(folder: Path) -> list[int]:
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        said = [(folder / rank).read_text() if (folder / rank).exists() else "" for rank in "01"]
        if all(said):
            return [int(pid) for pid in said]
        time.sleep(0.02)
    raise AssertionError("the ranks have not begun")


def are_gone(pids: list[int]) -> bool:
    deadline_s = time.monotonic() + 120
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_ranks_have_folder_environment_and_streams_of_who_asks(nursery: Path, tmp_path: Path) -> None:
    for _ in range(2):  # it serves many
        with ask(nursery, tmp_path, WORDS) as asker:
            out, err = asker.communicate(timeout=120)
        assert (asker.returncode, err) == (0, "")
        assert sorted(out.splitlines()) == [f"{rank} ours False {tmp_path} ['--flag']" for rank in range(2)]


def test_its_exit_code_is_the_launchers(nursery: Path, tmp_path: Path) -> None:
    with ask(nursery, tmp_path, "import os; os._exit(int(os.environ['RANK']))") as asker:
        _, err = asker.communicate(timeout=120)
    assert asker.returncode == 1
    assert "rank 1 exit code 1" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_ranks_end_with_who_asked(nursery: Path, tmp_path: Path, number: signal.Signals) -> None:
    with ask(nursery, tmp_path, SLEEPS) as asker:
        pids = pids_in(tmp_path)
        asker.send_signal(number)
        assert asker.wait(20) == (1 if number == signal.SIGTERM else -signal.SIGKILL)
    assert are_gone(pids)
