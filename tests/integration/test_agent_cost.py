"""The measurement of an agent's cost measures: a small load, all of it reported, and figures that can be."""

from __future__ import annotations

import pytest

from whichrank.testbed.bench.overhead_agent import agent_cost
from whichrank.testbed.bench.overhead_job import job_cost

pytestmark = pytest.mark.integration


def test_cost_is_measured_and_no_record_is_lost() -> None:
    cost = agent_cost(2, 200, windows=2, window_s=2.0, settle_s=2.0)
    assert 100 < cost.ops_per_s < 400
    assert cost.polls >= 2
    assert 0 < cost.low_percent <= cost.cpu_percent <= cost.high_percent < 50
    assert 10 < cost.rss_mib < 50
    assert cost.lost_records == 0


def test_a_run_and_its_agent_are_measured_together() -> None:
    cost = job_cost(200, 2, windows=2, window_s=2.0, settle_s=2.0)
    assert len(cost.percent) == 2
    assert 0 < max(cost.percent) < 50
