"""What is done about something slow, in files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from whichrank.act.planner import Effect, Level
from whichrank.server.mitigations_file import (
    ASKED_FILE,
    MITIGATIONS_FILE,
    NOW_FILE,
    MitigateAsked,
    Mitigated,
    MitigationNow,
    mitigate_requests,
    mitigated_in,
    of_effect,
    read_now,
)
from whichrank.server.record import JobSummary, Record

AT = datetime(2026, 11, 28, tzinfo=UTC)
NOW = MitigationNow(mode="ask", level=2, steps=(1,), impact_s=3.0, healthy_s=1.0, now_s=1.5)


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    record = Record(tmp_path)
    yield record
    record.remove_if_empty()


def test_what_was_done_stands_in_a_file_line_by_line_for_the_user_alone(tmp_path: Path, record: Record) -> None:
    lines = [Mitigated(at=AT, what="made", step=1, level=2), of_effect(Effect(Level.REBALANCE, 0.9, 0.6, 0.61), 1, AT)]
    record.begin(JobSummary(job="j", command=["x"], started=AT))
    for line in lines:
        record.write_mitigated(line)
    assert [msgspec.structs.replace(line, job="") for line in mitigated_in(tmp_path, "j")] == lines
    assert mitigated_in(tmp_path, "another") == ()
    plain = [json.loads(line) for line in (tmp_path / MITIGATIONS_FILE).read_text().splitlines()]
    assert (plain[1]["schema"], plain[1]["step"], plain[1]["measured_s"]) == ("whichrank.mitigation/1", 1, 0.61)
    assert (tmp_path / MITIGATIONS_FILE).stat().st_mode & 0o077 == 0


def test_request_lies_there_until_it_is_answered(tmp_path: Path, record: Record) -> None:
    asked = MitigateAsked(id="me", what="apply", step=1)
    mitigate_requests(tmp_path).ask(asked)
    assert record.mitigation_asked() == record.mitigation_asked() == asked
    record.write_mitigated(Mitigated(at=AT, what="made", step=1, request="me"))
    assert record.mitigation_asked() is None
    assert not (tmp_path / ASKED_FILE).exists()


def test_how_it_is_now_is_known_until_the_next_run(tmp_path: Path, record: Record) -> None:
    assert read_now(tmp_path) is None
    record.write_mitigation(NOW)
    assert read_now(tmp_path) == NOW
    record.write_mitigation(None)
    assert read_now(tmp_path) is None
    record.write_mitigation(NOW)
    record.begin(JobSummary(job="j", command=["x"], started=AT))
    assert read_now(tmp_path) is None
    (tmp_path / NOW_FILE).write_text("{")
    assert read_now(tmp_path) is None
