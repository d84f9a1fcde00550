"""Answers of RAS that stand in the middle of a log."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_ras_text import BEHIND, text_of

from whichrank.intake.logs import read_log
from whichrank.intake.read import read
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.logs import jobs
from whichrank.testbed.bench.logs.jobs import VERSIONS, Job
from whichrank.testbed.bench.logs.ras import behind_in_a_long_log

BEHIND_TEXT = text_of(BEHIND).decode()
OTHERS = "iteration 7 loss 0.1\n" * 5000


def late() -> str:
    job = Job(8, 5, VERSIONS[-1], 167, 3, "ALLREDUCE", 4096, Random(1))
    return "".join(f"{text}\n" for _, text in jobs.late(job).lines)


@pytest.mark.parametrize("dress", ["{}", "0: {}", "2026-06-01T03:00:00.1Z stderr F {}"])
def test_answers_are_read_wherever_they_stand(dress: str) -> None:
    whole = OTHERS + BEHIND_TEXT + OTHERS + BEHIND_TEXT
    log = read_log(io.BytesIO("".join(f"{dress.format(line)}\n" for line in whole.splitlines()).encode()))
    assert len(log.polls) == 2
    assert log.polls[0].launched == log.polls[1].launched != {}


def test_lines_of_the_watchdog_beside_them_are_read_too() -> None:
    log = read_log(io.BytesIO((OTHERS + BEHIND_TEXT + late()).encode()))
    assert len(log.polls) == 1
    assert {one.rank for one in log.standings} == set(range(8))


def test_answers_at_the_begin_of_a_file_are_not_counted_twice(tmp_path: Path) -> None:
    # GIVEN one look at the begin of a file, and lines of the watchdog behind it
    (tmp_path / "job.log").write_text(BEHIND_TEXT + late())
    (recording,) = read([tmp_path]).recordings
    # THEN the verdict is the watchdog's, since one look says who is behind for a moment only
    (incident,) = analyze(recording)
    assert [c.rank for c in incident.culprits] == [5]


def test_two_looks_behind_a_long_log_name_who_is_behind(tmp_path: Path) -> None:
    job = Job(8, 3, VERSIONS[-1], 167, 3, "ALLREDUCE", 4096, Random(1))
    ((_, text),) = behind_in_a_long_log(job).lines
    assert text.index("Job summary") > 1 << 16
    (tmp_path / "job.log").write_text(text)
    (recording,) = read([tmp_path]).recordings
    assert [c.rank for incident in analyze(recording) for c in incident.culprits] == [3]
