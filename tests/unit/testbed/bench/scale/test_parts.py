"""What is measured is held against what it must be, and printed."""

from __future__ import annotations

import pytest

from whichrank.testbed.bench.figures import Figure, figure
from whichrank.testbed.bench.scale import parts
from whichrank.testbed.bench.scale.fits import fit
from whichrank.testbed.bench.scale.ingest import figures_of
from whichrank.testbed.bench.scale.receiver import Iteration, Received
from whichrank.testbed.bench.scale.sender import iteration_s, rounds_of
from whichrank.testbed.bench.scale.simulation import measure as simulate


def received(cpu_s: float, iterations: int = 5, alerts: int = 0) -> Received:
    one = Iteration(cpu_s=cpu_s, decode_s=0.1, feed_s=0.2, tick_s=0.0, ticks=3, records=1000, wall_s=5.0)
    return Received([one] * iterations, 100.0, 0, alerts)


def test_a_figure_is_met_within_its_limit_and_with_the_right_verdict() -> None:
    assert figure("x", 64, [1.0, 2.0, 9.0], "ms", limit=2.0).is_met
    assert not figure("x", 64, [1.0, 2.5, 9.0], "ms", limit=2.0).is_met
    assert not figure("x", 64, [1.0], "ms", is_right=False).is_met


def test_line_through_costs() -> None:
    line = fit("cost", "s", [1000, 2000, 4000], [3.0, 5.0, 9.0])
    assert line is not None
    assert (line.slope, line.intercept, line.r2) == pytest.approx((2.0, 1.0, 1.0))
    assert fit("cost", "s", [1000, 2000], [3.0, 5.0]) is None


def test_agents_send_twenty_rounds_a_second() -> None:
    assert rounds_of(4096) / iteration_s(4096) == pytest.approx(20.0)
    assert 4.0 < iteration_s(4096) < 6.0


def test_cost_of_an_analyzer_is_that_of_a_second_of_the_job() -> None:
    cores, *_ = figures_of(65_536, received(2 * iteration_s(65_536)))
    assert (cores.n, cores.median, cores.limit, cores.is_met) == (2, pytest.approx(2.0), 2.0, True)
    assert not next(figures_of(65_536, received(9.0, alerts=1))).is_met
    assert not next(figures_of(65_536, received(1.0, iterations=2))).is_met  # nothing but what is not counted


def test_table_says_what_must_be_and_whether_it_is() -> None:
    some = [figure("one analyzer, all", ranks, [ranks / 1000], "cores", 2.0) for ranks in (1000, 2000, 4000)]
    results = parts.Results({"ingest": some}, [line for line in [fit("cpu", "cores", [1, 2, 3], [1, 2, 3])] if line])
    text = parts.table(results)
    assert "| one analyzer, all | 4,000 | 1 | 4.00 | 4.00 to 4.00 | cores | ≤ 2 | no |" in text
    assert "R² 1.0000" in text
    assert not results.are_met


def test_simulation_is_timed() -> None:
    shares: list[float] = []
    one = simulate(64, 2, 2, shares.append)
    assert (one.n, one.unit, one.limit) == (2, "s", None)
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_parts_are_measured_with_their_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    def located(sizes: list[int], halts: list[str]) -> list[Figure]:
        return [figure(halts[0], sizes[0], [1.0], "ms")]

    monkeypatch.setattr(parts.location, "measure", located)
    shares: list[float] = []
    results = parts.measure(["location"], quick=True, show_progress=lambda _, share: shares.append(share))
    assert len(results.figures["location"]) == 16
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert results.fits == []
