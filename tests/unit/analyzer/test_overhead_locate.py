"""The measuring of ingest and location, on small jobs."""

from __future__ import annotations

import json
from functools import partial

import pytest

from whichrank.bench import overhead_locate
from whichrank.bench.overhead_locate import culprit_of, hung, ingest, location, main, slow_look


def test_ingest_is_measured_per_record_and_per_batch() -> None:
    rate, cost = ingest(ranks=16, looks=4)
    assert (rate.n, rate.unit, cost.unit) == (2, "records/s", "ms")
    assert rate.low <= rate.median <= rate.high


@pytest.mark.parametrize("where", ["tp", "world"])
def test_a_location_is_measured_only_if_it_is_right(where: str) -> None:
    figures = location(128, where, looks=2)
    assert [f.unit for f in figures] == ["ms"] * 3
    analyzer, now_s = hung(128, where)
    found = analyzer.diagnosis.hang(analyzer.state.picture(now_s), 0.6)
    assert found is not None
    assert found.names == {culprit_of(128)}


def test_figures_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN taking in is measured on a job that is small too
    monkeypatch.setattr(overhead_locate, "ingest", partial(ingest, ranks=16, looks=4))
    assert main(["--ranks", "64", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {f["ranks"] for f in figures} == {16, 64}
    assert all(f["n"] > 1 and f["median"] > 0 for f in figures)


def test_a_look_for_slowness_is_measured_only_if_it_names_the_slow_rank() -> None:
    (figure,) = slow_look(64, looks=2)
    assert (figure.n, figure.unit) == (2, "ms")
