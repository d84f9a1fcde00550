"""Where the time of ranks goes, written by a run and read by those who watch it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from whichrank.model.changes import LevelChange
from whichrank.model.incident import Spent
from whichrank.model.links import LinkRate
from whichrank.server.record import JobSummary, Record, utc_now
from whichrank.server.times_file import MOST_BYTES, TIMES_FILE, Times, encode_times, read_times

RANKS = tuple(Spent(rank=rank, own_s=0.1 * rank, transfer_s=0.01, waiting_s=0.0) for rank in (0, 3))
LINKS = (
    LinkRate(src=0, dst=3, rate=6e6, best=5e7, busy=0.5, paced=True),
    LinkRate(src=3, dst=0, rate=5e7, busy=0.1, paced=False),
)
CHANGES = (LevelChange(at=datetime(2026, 11, 28, tzinfo=UTC), iteration=23, before_s=1.0, after_s=1.5),)
TIMES = Times(RANKS, LINKS, CHANGES)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = Record(tmp_path / "run")
    record.write_times(Times())
    assert read_times(record.folder) == Times()
    record.write_times(TIMES)
    assert read_times(record.folder) == TIMES
    assert read_times(record.folder).by_rank() == {0: RANKS[0], 3: RANKS[1]}
    # AND nothing else is left of it, and it is not written again while it stays the same
    assert {p.name for p in record.folder.iterdir()} == {"incidents.jsonl", TIMES_FILE}
    (record.folder / TIMES_FILE).unlink()
    record.write_times(TIMES)
    assert read_times(record.folder) == Times()
    record.close(JobSummary(job="j", command=[], started=utc_now()))


def test_a_folder_with_nothing_but_times_is_empty(tmp_path: Path) -> None:
    record = Record(tmp_path / "out" / "run")
    record.write_times(TIMES)
    record.remove_if_empty()
    assert not record.folder.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"schema": "whichrank.times/2", "ranks": []}', b"\xff", encode_times(TIMES)[:-3],
     b'{"schema": "whichrank.times/1", "ranks": [{"rank": -1, "own_s": 1, "transfer_s": 0, "waiting_s": 0}]}',
     b'{"schema": "whichrank.times/1", "links": [{"src": 0, "dst": -1, "rate": 1, "busy": 0}]}',
     b'{"schema": "whichrank.times/1", "changes": [{"at": "now", "iteration": 1, "before_s": 1, "after_s": 1}]}',
     encode_times(TIMES) + b" " * MOST_BYTES],
    ids=["empty", "cut", "list", "version", "bytes", "part", "rank", "link", "change", "long"],
)  # fmt: skip
def test_another_file_of_that_name_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / TIMES_FILE).write_bytes(content)
    assert read_times(tmp_path) == Times()


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / TIMES_FILE)
    assert read_times(tmp_path) == Times()


def test_no_file_says_nothing(tmp_path: Path) -> None:
    assert read_times(tmp_path) == Times()
    assert read_times(tmp_path / "none\0") == Times()
