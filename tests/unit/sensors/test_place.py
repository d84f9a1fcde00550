"""The folder for rings where nobody has made it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from whichrank.errors import SensorError
from whichrank.ring.folder import JobFolder
from whichrank.sensors import place
from whichrank.sensors.place import make_place


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_both_folders_are_made(tmp_path: Path) -> None:
    make_place(str(tmp_path / "whichrank" / "job"))
    assert mode(tmp_path / "whichrank") == 0o1777
    assert mode(tmp_path / "whichrank" / "job") == 0o700


def test_agent_takes_the_folder_over(tmp_path: Path) -> None:
    make_place(str(tmp_path / "job"))
    (tmp_path / "job" / "1.ring").write_bytes(b"")
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    assert folder.owner() is not None
    assert [ring.name for ring in folder.rings()] == ["1.ring"]


def test_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    before = mode(tmp_path)
    make_place(str(folder.path))
    assert folder.owner() is not None
    assert (mode(tmp_path), mode(folder.path)) == (before, 0o700)


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_place(str(tmp_path / "job"))
    monkeypatch.setattr(place.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SensorError, match="belongs to user") as refusal:
        make_place(str(tmp_path / "job"))
    assert "--job" in refusal.value.mend


def test_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job").symlink_to(tmp_path)
    with pytest.raises(SensorError, match="no folder"):
        make_place(str(tmp_path / "job"))


def test_what_cannot_be_made_is_left_to_the_ring() -> None:
    make_place("/dev/null/nowhere/job")


def test_nothing_heavy_is_imported() -> None:
    snapshot = (
        "import sys, whichrank.sensors.place; print([m for m in ('numpy', 'msgspec', 'json') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", snapshot], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
