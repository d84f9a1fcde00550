"""Made logs, by version, prefix, fault and damage: no healthy rank is named, and the culprit is if the log decides."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from random import Random

import pytest

from whichrank.intake.logs import read_log
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.logs import speed
from whichrank.testbed.bench.logs.faults import FAULTS
from whichrank.testbed.bench.logs.made import Made, make
from whichrank.testbed.bench.logs.score import Scored, score, table_of

FIRST, OF_EACH = 70_000, 12


@pytest.fixture(name="scored", scope="module")
def _scored() -> list[Scored]:
    numbers = range(FIRST, FIRST + OF_EACH * len(FAULTS))
    return [score(make(number), analyze) for number in numbers]


def test_no_healthy_rank_is_named(scored: list[Scored]) -> None:
    assert len(scored) == OF_EACH * len(FAULTS)
    assert [one.name for one in scored if one.said == "wrong name"] == []


def test_the_culprit_is_named_where_the_log_says_who_it_is(scored: list[Scored]) -> None:
    decided = [one for one in scored if one.decides]
    assert len(decided) > len(FAULTS)
    assert [one.name for one in decided if one.said != "named"] == []


def test_else_it_is_among_the_candidates_of_most(scored: list[Scored]) -> None:
    said = [one.said for one in scored if not one.decides]
    assert said.count("named") + said.count("candidates") > 0.85 * len(said)


def test_a_number_makes_the_same_log_again() -> None:
    assert make(17) == make(17)
    assert make(17).data != make(18).data


def test_a_wrong_name_is_counted_as_one() -> None:
    # GIVEN a log in which another rank than the one that is said to be at fault is late
    made = next(one for one in map(make, range(FIRST, FIRST + 900)) if one.fault == "crashed" and one.decides)
    other = Made(made.name, made.fault, made.data, (made.culprit + 1) % 2, made.decides, made.is_mentioned)
    found = score(other, analyze)
    assert (found.said, found.named) == ("wrong name", (made.culprit,))
    assert "| crashed | yes | 1 | 0 | 0 | 0 | 0 | 1 |" in table_of([found])


def test_logs_of_each_kind_are_read_and_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN lines of each kind in which something is of interest
    for lines in speed.KINDS.values():
        first = "\n".join(itertools.islice(lines(Random(0)), 2 * speed.ONE_IN))
        assert read_log(io.BytesIO(first.encode())).says_something
    # WHEN logs of two kinds are read with the command
    kinds = dict(itertools.islice(speed.KINDS.items(), 2))
    monkeypatch.setattr(speed, "KINDS", kinds)
    took = speed.measure(tmp_path, 20_000)
    # THEN each has its time and memory, and nothing is left behind
    assert [one.kind for one in took] == list(kinds)
    assert all(one.bytes >= 20_000 and one.seconds > 0 and one.peak_bytes > 1 << 20 for one in took)
    assert speed.table_of(took).count("\n") == 1 + len(kinds)
    assert not list(tmp_path.iterdir())
