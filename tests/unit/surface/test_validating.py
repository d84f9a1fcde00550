"""Who asks a run for a validation: the answer, others who ask, a run that ends, and leaving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whichrank.errors import IncompleteDataError
from whichrank.server.record import JobSummary, Record, utc_now
from whichrank.server.validations_file import ASKED_FILE, Asked, Validated, requests
from whichrank.surface import asking
from whichrank.surface.validating import validate

SUMMARY = JobSummary(job="j", command=["x"], started=utc_now())


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    record = Record(tmp_path)
    record.begin(SUMMARY)
    yield record
    record.remove_if_empty()


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens while it waits, one after the other."""
    steps: list[Callable[[], None]] = []
    monkeypatch.setattr(asking.time, "sleep", lambda _: steps.pop(0)() if steps else None)
    monkeypatch.setattr(asking, "TALK_EVERY_S", 0.0)
    return steps


def answer(record: Record) -> None:
    asked = record.asked()
    assert asked is not None
    record.write_validated(Validated(asked=asked, paused_s=2.0))


def test_who_asks_gets_the_answer(record: Record, meanwhile: list[Callable[[], None]]) -> None:
    meanwhile += [lambda: None, lambda: answer(record)]
    assert validate(record.folder, Asked(), 60, lambda _: None).paused_s == 2.0
    assert requests(record.folder).asked() is None


def test_two_who_ask_do_so_one_after_the_other(record: Record, meanwhile: list[Callable[[], None]]) -> None:
    # GIVEN a run that is asked already
    requests(record.folder).ask(Asked(id="another"))
    said: list[str] = []
    meanwhile += [lambda: None, lambda: answer(record), lambda: answer(record)]
    result = validate(record.folder, Asked(), 60, said.append)
    # THEN the second one is told that it waits, and gets an answer of its own
    assert result.asked.id != "another"
    assert "waits for its turn" in said[0]


def test_second_one_does_not_wait_for_ever(record: Record, meanwhile: list[Callable[[], None]]) -> None:
    requests(record.folder).ask(Asked(id="another"))
    with pytest.raises(IncompleteDataError, match="somebody else still asks"):
        validate(record.folder, Asked(), 0.05, lambda _: None)
    assert requests(record.folder).asked() == Asked(id="another")


def test_run_that_ends_meanwhile_is_said(record: Record, meanwhile: list[Callable[[], None]]) -> None:
    meanwhile.append(lambda: record.close(JobSummary(job="j", command=["x"], started=utc_now(), ended=utc_now())))
    with pytest.raises(IncompleteDataError, match="the run has ended") as raised:
        validate(record.folder, Asked(), 60, lambda _: None)
    assert raised.value.exit_code == 5
    assert not (record.folder / ASKED_FILE).exists()
    with pytest.raises(IncompleteDataError, match="the run has ended"):  # and also if it is asked then
        validate(record.folder, Asked(), 60, lambda _: None)


def test_who_leaves_takes_the_request_back(record: Record, meanwhile: list[Callable[[], None]]) -> None:
    def leave() -> None:
        assert requests(record.folder).asked() is not None
        raise KeyboardInterrupt

    meanwhile.append(leave)
    with pytest.raises(KeyboardInterrupt):
        validate(record.folder, Asked(), 60, lambda _: None)
    assert requests(record.folder).asked() is None


def test_request_of_an_earlier_run_is_not_for_the_next_one(record: Record) -> None:
    requests(record.folder).ask(Asked(id="one"))
    record.begin(SUMMARY)
    assert requests(record.folder).asked() is None
