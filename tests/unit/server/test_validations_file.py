"""What somebody asks of a run, and what came of it, in files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from whichrank.server import lines_file
from whichrank.server.record import Record
from whichrank.server.requests import Requests
from whichrank.server.validations_file import (
    ASKED_FILE,
    MOST_PROBLEMS,
    RESULTS_FILE,
    Asked,
    Validated,
    add_result,
    requests,
    results_from_now_on,
)


def result(asked_id: str, **fields: object) -> Validated:
    return Validated(asked=Asked(id=asked_id), paused_s=1.0, **fields)  # type: ignore[arg-type]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    record = Record(tmp_path)
    yield record
    record.remove_if_empty()


def test_request_lies_there_until_it_is_answered_and_one_at_a_time(tmp_path: Path, record: Record) -> None:
    requests(tmp_path).ask(Asked(id="one"))
    with pytest.raises(FileExistsError):
        requests(tmp_path).ask(Asked(id="other"))
    assert requests(tmp_path).asked() == requests(tmp_path).asked() == Asked(id="one")
    requests(tmp_path).take_back("other")  # it is not theirs
    assert requests(tmp_path).asked() == Asked(id="one")
    record.write_validated(result("one"))
    assert record.asked() is None
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("validate.")] == []


def test_request_that_cannot_be_removed_is_answered_once(
    tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Requests, "remove", lambda self: None)
    requests(tmp_path).ask(Asked(id="one"))
    assert record.asked() == Asked(id="one")
    record.write_validated(result("one"))
    assert record.asked() is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"id": ""}', b'{"id": "a", "longest_s": 1000}'])
def test_request_that_makes_no_sense_is_removed(content: bytes, tmp_path: Path) -> None:
    (tmp_path / ASKED_FILE).write_bytes(content)
    assert requests(tmp_path).asked() is None
    assert not (tmp_path / ASKED_FILE).exists()


def test_link_is_no_request(tmp_path: Path) -> None:
    # GIVEN a link to a file that would be one
    other = tmp_path / "other"
    other.write_text(json.dumps({"id": "one"}))
    (tmp_path / ASKED_FILE).symlink_to(other)
    # WHEN it is looked for THEN there is none, and the link alone is gone
    assert requests(tmp_path).asked() is None
    assert not os.path.lexists(tmp_path / ASKED_FILE)
    assert other.exists()


def test_only_new_results_are_read(tmp_path: Path) -> None:
    add_result(tmp_path, result("old"))
    results = results_from_now_on(tmp_path)
    assert results.read() == []
    add_result(tmp_path, result("new"))
    with (tmp_path / RESULTS_FILE).open("ab") as file:
        file.write(b"no result\n{")  # a line that is none, and one that is being written
    assert [one.asked.id for one in results.read()] == ["new"]
    assert results.read() == []


def test_results_that_come_first_are_read(tmp_path: Path) -> None:
    results = results_from_now_on(tmp_path)
    add_result(tmp_path, result("first"))
    assert [one.asked.id for one in results.read()] == ["first"]


def test_file_of_results_is_bounded_and_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_file, "MOST_BYTES", 5000)
    results, read = results_from_now_on(tmp_path), list[str]()
    for number in range(100):
        add_result(tmp_path, result(str(number)))
        read += [one.asked.id for one in results.read()]
        assert (tmp_path / RESULTS_FILE).stat().st_size <= 5000
        assert read[-1] == str(number)
    assert (tmp_path / RESULTS_FILE).stat().st_mode & 0o777 == 0o600


def test_of_problems_a_hundred_are_written(tmp_path: Path) -> None:
    results = results_from_now_on(tmp_path)
    add_result(tmp_path, result("one", problems=dict.fromkeys(range(5000), "no device")))
    assert sorted(results.read()[0].problems) == list(range(MOST_PROBLEMS))
