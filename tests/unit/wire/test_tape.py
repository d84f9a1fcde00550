"""A tape gives back what was written, and whatever else is in the file costs a sentence."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whichrank.errors import FormatError, IncompleteDataError, WhichrankError
from whichrank.model.telemetry import VERSION, Batch
from whichrank.wire.tape import Entry, Head, Tape, TapeWriter

HEAD = Head("job-1", 1700000000.25, {"hang_timeout_s": 300.0})


def batch(sequence: int) -> Batch:
    return Batch(VERSION, "job-1", "host:1", "host", sequence, 1, 2, -1, 0)


ENTRIES = [
    Entry("batch", 1.5, batch(1)),
    Entry("tick", 2.0, None),
    Entry("batch", 2.5, batch(2)),
    Entry("finish", 3.0, None),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "telemetry.tape"
    writer = TapeWriter(path, HEAD)
    for entry in ENTRIES:
        writer.write(*entry)
    writer.close()
    return path


def test_what_was_written_comes_back(path: Path) -> None:
    tape = Tape(path)
    assert (tape.head, list(tape), tape.is_whole) == (HEAD, ENTRIES, True)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_tape_that_was_cut_anywhere_gives_its_whole_entries(path: Path, tmp_path: Path) -> None:
    whole, cut = path.read_bytes(), tmp_path / "cut.tape"
    seen = set()
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        try:
            tape = Tape(cut)
        except (FormatError, IncompleteDataError):
            continue
        entries = list(tape)
        seen.add(len(entries))
        assert entries == ENTRIES[: len(entries)]
        assert len(entries) < len(ENTRIES)
    assert seen == {0, 1, 2, 3}


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(0, 10_000), flipped=st.integers(1, 255))
def test_no_byte_of_it_is_believed(path: Path, tmp_path: Path, at: int, flipped: int) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[at % len(damaged)] ^= flipped
    (tmp_path / "damaged.tape").write_bytes(damaged)
    with contextlib.suppress(WhichrankError):  # and nothing else
        tape = Tape(tmp_path / "damaged.tape")
        assert tape.head == HEAD
        for entry, written in zip(tape, ENTRIES, strict=False):
            assert entry == written
        assert not tape.is_whole


@pytest.mark.parametrize("content", [b"", b"WRTAP", b"noise" * 100, b"WRTAPE\x02\x00\xff\xff\xff\xff"])
def test_what_is_no_tape_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tape").write_bytes(content)
    with pytest.raises((FormatError, IncompleteDataError)) as caught:
        Tape(tmp_path / "x.tape")
    assert caught.value.where == str(tmp_path / "x.tape")


def test_a_newer_tape_is_reported_to_be_one(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[6] = 9
    path.write_bytes(content)
    with pytest.raises(FormatError, match="the tape has format 9, newer than the 2 that this whichrank reads"):
        Tape(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.tape")
    with pytest.raises(IncompleteDataError, match="it is no file"):
        Tape(tmp_path / "fifo.tape")


def test_one_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(IncompleteDataError, match="the tape cannot be read: No such file or directory"):
        Tape(tmp_path / "none.tape")
