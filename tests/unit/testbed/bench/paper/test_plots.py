"""Figures 12 and 13: slack against the simulator, thresholds of the drill-down, and their files."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from whichrank.stage.layout import Layout
from whichrank.stage.schedules import one_f_one_b
from whichrank.testbed.bench.paper import plots
from whichrank.testbed.bench.paper.heat_map_svg import Axis, heat_map
from whichrank.testbed.bench.paper.intervals import Counts
from whichrank.testbed.bench.paper.thresholds import BETAS, PERFORMANCES, Scan, performances, scan
from whichrank.testbed.bench.paper.tolerated import GROWTH, Tolerated, tolerated

SMALL = Layout(pp=2, dp=2)


def test_slack_is_what_the_simulator_tolerates() -> None:
    found = tolerated(one_f_one_b(2, 3), SMALL)
    assert found.measured_s == pytest.approx(found.by_graph_s, abs=1e-3)
    # AND a block on the critical path may grow by what is allowed only, one beside it by more
    assert found.by_graph_s.min() == pytest.approx(GROWTH * found.iteration_s)
    assert found.by_graph_s.max() > 0.02


def test_performance_is_that_of_the_first_iterations() -> None:
    iteration_s = np.array([1.0] * 8 + [1.25, 2.0])
    assert performances(iteration_s)[-2:] == pytest.approx([0.8, 0.5])


def test_lower_thresholds_find_more() -> None:
    found = scan(9, first_seed=60)  # one of each magnitude, of seeds that are not scored
    strict, loose = found.counts[0.5, 4.0], found.counts[1.0, 0.1]
    assert strict.due == loose.due > 0
    assert strict.right < loose.right
    assert len(found.counts) == len(PERFORMANCES) * len(BETAS)


def test_heat_map_says_what_it_shows() -> None:
    values = np.array([[1.0, np.nan], [3.0, 2.0]])
    text = heat_map("Time <ms>", "n = 3", Axis("rows", "ab"), Axis("columns", "xy"), values, lambda value: f"{value:g}")
    texts = [one.text for one in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["Time <ms>", "n = 3", "columns", "rows", "a", "b", "x", "y", "1", "3", "2"]
    # AND a dark page has colours of its own
    assert "prefers-color-scheme:dark" in text


def test_all_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = one_f_one_b(2, 2)
    some_s = np.full(len(schedule.rank), 0.02)
    small = Tolerated(schedule, 0.5, some_s, some_s)
    counts = {(p, beta): Counts(right=1) for p in PERFORMANCES for beta in BETAS}
    monkeypatch.setattr(plots, "tolerated", lambda **_: small)
    monkeypatch.setattr(plots, "scan", lambda runs, _: Scan(runs, 30, counts))
    written = plots.draw_all(tmp_path / "new", 3, lambda *_: None)
    assert {path.suffix for path in written} == {".csv", ".svg"}
    assert written[0].read_text().splitlines()[1] == "0,forward,0,20.00,20.00"
    assert "n = 30 iterations of 3 simulated jobs" in (tmp_path / "new/paper-thresholds-recall.svg").read_text()
