"""The measuring of ingest and location, on small jobs."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from whichrank.analyzer import Analyzer
from whichrank.hang.order import what_hangs
from whichrank.testbed.bench import overhead_locate
from whichrank.testbed.bench.overhead_locate import culprit_of, hung, ingest, location, main, slow_poll, steady
from whichrank.testbed.sim.halts import Where


def test_ingest_is_measured_per_record_and_per_batch_and_without_slowness_apart() -> None:
    rate, cost, on_devices = ingest(ranks=16, samples=2)
    assert (rate.n, rate.unit, cost.unit, on_devices.unit) == (2, "records/s", "ms", "records/s")
    assert rate.low <= rate.median <= rate.high
    assert "without slowness" in on_devices.what


def test_ingest_is_measured_with_slowness_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN it is noted which analyzers measure the job whose rate is held against the target, and the other one
    fed: list[Analyzer] = []

    class Noted(Analyzer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            fed.append(self)

    monkeypatch.setattr(overhead_locate, "Analyzer", Noted)
    # WHEN ingest is measured
    ingest(ranks=16, samples=1)
    # THEN iterations of the first job are measured, and none of the job on devices
    assert [analyzer.slowness.iterations.newest >= 0 for analyzer in fed] == [True, False]
    assert fed[1].slowness.iterations.pending == 0


@pytest.mark.parametrize("where", ["tp", "world"])
def test_a_location_is_measured_only_if_it_is_right(where: Where) -> None:
    figures = location(128, where, polls=2)
    assert [f.unit for f in figures] == ["ms"] * 3
    analyzer, now_s = hung(128, where)
    found = what_hangs(analyzer.case, analyzer.store.picture(now_s), 0.6)
    assert found is not None
    assert found.names == {culprit_of(128)}


def test_figures_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN taking in is measured on a job that is small too, and each look for slowness twice
    monkeypatch.setattr(overhead_locate, "ingest", partial(ingest, ranks=16, samples=2))
    monkeypatch.setattr(overhead_locate, "slow_poll", partial(slow_poll, polls=2))
    monkeypatch.setattr(overhead_locate, "steady", partial(steady, samples=2))
    # AND what other tests have made is not looked through before each sample
    monkeypatch.setattr(overhead_locate.gc, "collect", lambda: 0)
    assert main(["--ranks", "64", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {f["ranks"] for f in figures} == {16, 64}
    assert all(f["n"] > 1 and f["median"] > 0 for f in figures if f["what"] != "memory")


def test_a_snapshot_for_slowness_is_measured_only_if_it_names_the_slow_rank() -> None:
    (figure,) = slow_poll(64, polls=2)
    assert (figure.n, figure.unit) == (2, "ms")


def test_what_batches_of_a_second_take_is_measured() -> None:
    share, decoding, *ticks, memory = steady(64, samples=2)
    assert (share.ranks, share.n, share.unit, memory.unit) == (64, 2, "%", "MiB")
    assert 0 < share.low <= share.median <= share.high < 100
    assert 0 < decoding.median < share.median
    assert [f.what for f in ticks] == ["one tick, all is new", "one tick, nothing is new"]


def test_a_deadlock_of_many_ranks_is_located_as_one() -> None:
    figures = location(128, "deadlock", polls=2)
    assert [f.unit for f in figures] == ["ms"] * 3
