"""The drill-down, timed: all pipelines and pruned find the same rank."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.stage.straggler import Pipelines
from whichrank.testbed.bench.scale.graph import measure


def test_both_ways_are_measured_and_checked() -> None:
    every, pruned = measure([64], times=2)
    assert (every.what, pruned.what) == ("trace graph, all pipelines", "trace graph, pruned")
    assert every.n == pruned.n == 2
    assert every.is_right
    assert pruned.is_right


def test_a_wrong_name_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a drill-down that names nobody
    monkeypatch.setattr(Pipelines, "stragglers", lambda *_args, **_kwargs: ())
    assert [one.is_right for one in measure([64], times=1)] == [False, False]
    assert not any(np.isnan(one.median) for one in measure([64], times=1))
