"""Temporary folders of a command go with it, however it ends; what it keeps, and what others made, stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_process import eventually

from whichrank.testbed.demo import folders
from whichrank.testbed.demo.folders import new_folder
from whichrank.testbed.demo.hub import Hub
from whichrank.testbed.lab import box
from whichrank.testbed.lab.network import can_be_here

needs_lab = pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc")

PROGRAM = """
import shutil, time
from whichrank.testbed.demo.folders import keep, new_folder
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
    program = "import time; from whichrank.testbed.demo import folders; print(folders.new_folder('left-'), flush=True)"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", f"{program}; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        process.kill()
    # THEN it goes each time
    for _ in range(3):
        eventually(lambda: not folder.exists())
        folder.mkdir()
    eventually(lambda: not folder.exists())


def test_a_janitor_goes_when_folders_have_stayed_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a folder that is made again and again after it was removed, for longer than it has to stay away
    folder = tmp_path / "folder"
    folder.mkdir()
    polls, again = [0], 3 * folders._AWAY

    def pass_time(_: float) -> None:
        polls[0] += 1
        if polls[0] <= again and polls[0] % 2:
            folder.mkdir()

    monkeypatch.setattr("whichrank.testbed.demo.folders.time.sleep", pass_time)
    folders._remove([folder])
    # THEN it is gone in the end
    assert not folder.exists()
    assert polls[0] >= again
    # and one that never stays away is given up
    polls[0], again = 0, 10**9
    folder.mkdir()
    folders._remove([folder])
    assert polls[0] == folders._POLLS


def test_a_socket_has_its_place_however_far_down_temporary_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_down = tmp_path / ("x" * 100)
    far_down.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(far_down))
    assert new_folder("here-").parent == far_down
    hub = Hub(lambda _: {})
    assert hub.folder.parent == Path("/tmp")
    hub.close()
    assert not hub.folder.exists()


def test_the_janitor_knows_of_a_folder_before_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = list[tuple[bool, bool]]()
    monkeypatch.setattr(folders, "_report", lambda folder, *, goes: reported.append((goes, folder.exists())))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert new_folder("here-").parent == tmp_path
    assert reported == [(True, False)]
    # and that none was made, if there is no place
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError):
        new_folder("here-")
    assert reported[1:] == [(True, False), (False, False)]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder in whose folders sockets have their place."""
    with tempfile.TemporaryDirectory(prefix="wr-") as folder:
        yield Path(folder)


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
def test_nothing_of_a_job_in_a_lab_is_left(
    command: list[str], number: int, prefixes: set[str], tmp_path: Path, short: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "whichrank", "lab", *command],
        env={**os.environ, "TMPDIR": str(short)}, cwd=tmp_path, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def is_under_way() -> bool:
        assert process.poll() is None
        begun = [path.name for path in short.iterdir()]
        return all(any(name.startswith(prefix) for name in begun) for prefix in prefixes | {"demo-"})

    # GIVEN a job that has begun WHEN its command is killed
    try:
        eventually(is_under_way)
    finally:
        process.send_signal(number)
        process.wait()
    # THEN its folders go with its lab
    ours = ("whichrank-", "demo-")
    eventually(lambda: not any(path.name.startswith(ours) for path in short.iterdir()))
    eventually(lambda: all(lab.owner_pid != process.pid for lab in box.labs()))
