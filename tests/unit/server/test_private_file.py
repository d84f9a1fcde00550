"""What a run writes is for its user alone, and nothing of the user's own is changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from whichrank.model.incident import Spent
from whichrank.server.private_file import make_private, open_private, write_private
from whichrank.server.record import JobSummary, Record, utc_now
from whichrank.server.times_file import Times
from whichrank.wire.tape import Head, TapeWriter


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_all_that_a_run_writes_is_for_its_user_alone(tmp_path: Path) -> None:
    # GIVEN a folder of the user's, which all may read
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    # WHEN a run writes into one below that is not there
    folder = shared / "whichrank-out" / "job"
    record = Record(folder)
    record.begin(JobSummary(job="j", command=["a"], started=utc_now()))
    record.write_times(Times((Spent(rank=0, own_s=1.0, transfer_s=0.0, waiting_s=0.0),)))
    record.close(JobSummary(job="j", command=["a"], started=utc_now()))
    TapeWriter(folder / "telemetry.tape", Head("j", 0.0, {})).close()
    # THEN
    assert {path.name for path in folder.iterdir()} == {"incidents.jsonl", "job.json", "times.json", "telemetry.tape"}
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    assert (mode(folder), mode(folder.parent), mode(shared)) == (0o700, 0o700, 0o755)


def test_files_of_an_earlier_run_become_private_and_keep_what_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "incidents.jsonl"
    path.write_bytes(b"before\n")
    path.chmod(0o644)
    with open_private(path) as file:
        file.write(b"after\n")
    assert (path.read_bytes(), mode(path)) == (b"before\nafter\n", 0o600)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_somebody_has_put_in_its_place_is_refused(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "telemetry.tape", tmp_path / "other"
    other.write_bytes(b"precious")
    if kind == "link":
        path.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(OSError):  # noqa: PT011
        write_private(path, b"x")
    with pytest.raises(OSError):  # noqa: PT011
        TapeWriter(path, Head("j", 0.0, {}))
    assert other.read_bytes() == b"precious"


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir(mode=0o775)
    make_private(folder)
    make_private(folder / "b" / "c")
    assert (mode(folder), mode(folder / "b"), mode(folder / "b" / "c")) == (0o775, 0o700, 0o700)
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError):  # noqa: PT011
            make_private(place)
