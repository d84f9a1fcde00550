"""The folder of a job: who may see it, who owns it, and when it may be removed."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ring_writer import RingWriter

from whichrank.errors import SensorError, UsageError
from whichrank.ring import folder as folder_module
from whichrank.ring.folder import JobFolder, base_folder, is_alive, job_folders, remove_dead, start_ticks


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as child:
        yield child
        child.kill()


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def rank_process(folder: JobFolder) -> subprocess.Popen[str]:
    program = Path(__file__).parents[1] / "ring_writer.py"
    child = subprocess.Popen(
        [sys.executable, str(program), str(folder.path), "0", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_folder_is_the_users_alone(tmp_path: Path) -> None:
    base = tmp_path / "base"
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=base)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert base.stat().st_mode & 0o7777 == 0o1777
    assert folder.is_ours()
    assert [found.job for found in job_folders(base)] == ["job"]
    assert list(base.iterdir()) == [folder.path]


def test_base_can_be_named() -> None:
    assert base_folder({}) == folder_module.BASE
    assert base_folder({"WHICHRANK_SHM": "/tmp/x"}) == Path("/tmp/x")


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "x" * 64, "ä"])
def test_name_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a job"):
        JobFolder.create(name, owner_pid=1, base=tmp_path)


def test_two_jobs_at_once(tmp_path: Path) -> None:
    for job in ("a", "b"):
        JobFolder.create(job, owner_pid=os.getpid(), base=tmp_path)
    assert {found.job for found in job_folders(tmp_path)} == {"a", "b"}
    assert remove_dead(tmp_path) == []


def test_name_of_a_living_job_is_refused(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    JobFolder.create("job", owner_pid=process.pid, base=tmp_path)
    with pytest.raises(UsageError, match="runs on this node"):
        JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    # WHEN its owner has gone, THEN the folder is taken over with what lies in it
    end(process)
    (tmp_path / "job" / "1.ring").touch()
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    owner = folder.owner()
    assert owner is not None
    assert owner.pid == os.getpid()
    assert len(folder.rings()) == 1


def test_no_place_for_rings_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SensorError, match="the job runs unobserved"):
        JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path / "file")


def test_dead_job_is_removed(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    folder = JobFolder.create("job", owner_pid=process.pid, base=tmp_path)
    assert remove_dead(tmp_path) == []
    end(process)
    assert remove_dead(tmp_path) == ["job"]
    assert not folder.path.exists()


def test_job_with_a_living_rank_stays(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    # GIVEN a job whose owner is gone and whose rank is not
    folder = JobFolder.create("job", owner_pid=process.pid, base=tmp_path)
    rank = rank_process(folder)
    end(process)
    # THEN it is kept, also when its ring cannot be read any more
    assert remove_dead(tmp_path) == []
    assert not folder.remove()
    os.truncate(folder.rings()[0], 10)
    assert remove_dead(tmp_path) == []
    # WHEN the rank has ended, THEN it goes
    with rank:
        rank.kill()
    assert remove_dead(tmp_path) == ["job"]


def test_reused_pid_is_another_process(tmp_path: Path) -> None:
    # GIVEN a ring that says its process began at another time than the one that has its pid now
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    writer = RingWriter(folder.path / f"{os.getpid()}.ring")
    assert folder_module.ring_alive(writer.path)
    with writer.path.open("r+b") as file:
        file.seek(48)
        file.write((1).to_bytes(8, "little"))
    assert not folder_module.ring_alive(writer.path)


def test_folder_of_another_pid_namespace_is_not_judged(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    folder = JobFolder.create("job", owner_pid=process.pid, base=tmp_path)
    end(process)
    owner = folder.path / "owner"
    owner.write_text(owner.read_text().replace("pid:[", "pid:[9"))
    assert remove_dead(tmp_path) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "null"])
def test_folder_without_a_readable_owner_is_left_alone(tmp_path: Path, content: str) -> None:
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    (folder.path / "owner").write_text(content)
    assert folder.owner() is None
    assert remove_dead(tmp_path) == []


def test_process_is_known_by_pid_and_start(process: subprocess.Popen[bytes]) -> None:
    ticks = start_ticks(process.pid)
    assert is_alive(process.pid, ticks)
    assert is_alive(process.pid, 0)
    assert not is_alive(process.pid, ticks + 1)
    # A zombie is gone: nobody runs there any more
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(process.pid, ticks)


def dead_job(base: Path, name: str = "job") -> JobFolder:
    """A job whose owner has gone."""
    with subprocess.Popen(["sleep", "1000"]) as child:
        folder = JobFolder.create(name, owner_pid=child.pid, base=base)
        child.kill()
    return folder


def test_what_is_not_ours_is_left_behind(tmp_path: Path) -> None:
    # GIVEN dead jobs with a directory, a link and a file that whichrank never makes, and one with nothing of the kind
    with_directory, with_link, with_file = (dead_job(tmp_path, name) for name in ("directory", "link", "file"))
    dead_job(tmp_path, "plain")
    (with_directory.path / "999999999.ring").mkdir()
    (with_directory.path / "999999998.ring").touch()
    (with_directory.path / "²x.ring").touch()
    (with_directory.path / "².ring").touch()
    (with_link.path / "999999999.ring").symlink_to(tmp_path / "elsewhere")
    (with_file.path / "notes.txt").write_text("mine")
    # WHEN dead jobs are removed
    # THEN that goes on past them, takes dead rings, and leaves the rest with its owner, for another try
    assert remove_dead(tmp_path) == ["plain"]
    assert {path.name for path in with_directory.path.iterdir()} == {"999999999.ring", "owner"}
    assert {path.name for path in with_link.path.iterdir()} == {"999999999.ring", "owner"}
    assert (with_file.path / "notes.txt").read_text() == "mine"
    (with_directory.path / "999999999.ring").rmdir()
    assert remove_dead(tmp_path) == ["directory"]


def test_socket_of_a_dead_analyzer_goes_with_the_folder(tmp_path: Path) -> None:
    folder = dead_job(tmp_path)
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(folder.path / "analyzer.sock"))
    assert remove_dead(tmp_path) == ["job"]


@pytest.mark.parametrize("refused", ["unlink", "rmdir"])
def test_refused_removal_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    # GIVEN a mount that has become read-only
    folder = dead_job(tmp_path)
    (folder.path / "999999999.ring").touch()

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, refused, refuse)
    # THEN nothing is removed and nothing raised
    assert not folder.remove()
    assert remove_dead(tmp_path) == []
    assert folder.path.exists()


def test_job_that_vanishes_while_they_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    monkeypatch.setattr(JobFolder, "is_ours", lambda folder: shutil.rmtree(folder.path) is None)
    assert [folder.job for folder in job_folders(tmp_path)] == ["job"]


def test_owner_is_reported_to_nobody_else(tmp_path: Path) -> None:
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    assert (folder.path / "owner").stat().st_mode & 0o777 == 0o600


def test_no_place_for_rings_names_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SensorError) as caught:
        JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path / "file")
    assert "WHICHRANK_SHM=DIR" in caught.value.mend
