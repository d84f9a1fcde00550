"""Temporary folders of a command go with it, however it ends; what it keeps, and what others made, stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rank_process import eventually

from whichrank.lab import box
from whichrank.lab.network import can_be_here

needs_lab = pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc")

PROGRAM = """
import shutil, time
from whichrank.demo.folders import keep, new_folder
left, kept, removed = map(new_folder, ("left-", "kept-", "removed-"))
for folder in (left, kept, removed):
    (folder / "file").touch()
keep(kept)
shutil.rmtree(removed)
(left.parent / "another").mkdir()
print("ready", flush=True)
time.sleep(600)
"""


def test_of_a_command_that_is_killed_its_own_folders_go(tmp_path: Path) -> None:
    # GIVEN a command with folders of its own, some of which it has kept or removed, and one that others made
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=env) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"ready\n"
        assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*-*")} == {0o700}
        # WHEN it is killed
        command.kill()
    # THEN what it has left is removed, and nothing else
    eventually(lambda: not list(tmp_path.glob("left-*")))
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"kept", "another"}


def test_a_folder_that_comes_back_is_removed_again(tmp_path: Path) -> None:
    # GIVEN a command that is killed while another one writes into its folder, and makes it anew
    program = "import time; from whichrank.demo import folders; print(folders.new_folder('left-'), flush=True)"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", f"{program}; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        process.kill()
    for _ in range(3):
        eventually(lambda: not folder.exists())
        folder.mkdir()
    # THEN it goes each time
    eventually(lambda: not folder.exists())


@needs_lab
@pytest.mark.lab
@pytest.mark.parametrize(
    ("command", "number", "prefixes"),
    [
        (["run", "--scenario", "none", "--workload", "ddp"], signal.SIGQUIT, {"whichrank-lab-", "whichrank-nursery-"}),
        (
            ["score", "--scenarios", "none", "--seeds", "1", "--launcher", "preloaded", "--methods", "none"],
            signal.SIGKILL,
            {"whichrank-score-", "whichrank-nursery-"},
        ),
    ],
)
def test_nothing_of_a_job_in_a_lab_is_left(command: list[str], number: int, prefixes: set[str], tmp_path: Path) -> None:
    there = tmp_path / "tmp"
    there.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "whichrank", "lab", *command],
        env={**os.environ, "TMPDIR": str(there)}, cwd=tmp_path, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def is_under_way() -> bool:
        assert process.poll() is None
        begun = [path.name for path in there.iterdir()]
        return all(any(name.startswith(prefix) for name in begun) for prefix in prefixes | {"demo-"})

    # GIVEN a job that has begun WHEN its command is killed
    try:
        eventually(is_under_way)
    finally:
        process.send_signal(number)
        process.wait()
    # THEN its folders go with its lab
    ours = ("whichrank-", "demo-")
    eventually(lambda: not any(path.name.startswith(ours) for path in there.iterdir()))
    eventually(lambda: all(lab.owner_pid != process.pid for lab in box.labs()))
