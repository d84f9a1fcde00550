"""What actions have cost is kept for the next job."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.server.overheads_file import FILE_NAME, Overheads, read_overheads, write_overheads


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WHICHRANK_CACHE", str(folder))
    return folder


def test_what_was_written_is_read_by_the_next_job(cache: Path) -> None:
    assert read_overheads() == Overheads()
    write_overheads(known := Overheads(handed_bytes_per_s=2.5e9))
    assert read_overheads() == known
    assert (cache / FILE_NAME).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content",
    ["", "{", '{"handed_bytes_per_s": -1}', '{"handed_bytes_per_s": "fast"}', '{"schema": "other/1"}', "1" * 10_000],
)
def test_nonsense_is_as_good_as_nothing(content: str, cache: Path) -> None:
    cache.mkdir(mode=0o700)
    (cache / FILE_NAME).write_text(content)
    assert read_overheads() == Overheads()


def test_place_that_cannot_be_written_is_left_alone(cache: Path) -> None:
    cache.write_text("a file")
    write_overheads(Overheads(handed_bytes_per_s=1.0))
    assert cache.read_text() == "a file"
