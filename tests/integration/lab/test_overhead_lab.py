"""The measurement of what whichrank costs the lab's workloads measures: the observer is off in every second block."""

from __future__ import annotations

import os

import pytest

from whichrank.testbed.bench import overhead_lab
from whichrank.testbed.bench.overhead import rows_of_lab
from whichrank.testbed.lab.box import labs
from whichrank.testbed.lab.network import can_be_here

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc"),
]


def test_blocks_with_and_without_are_timed_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead_lab, "COUNTED_S", 2.0)
    monkeypatch.setattr(overhead_lab, "SETTLE_S", 0.5)
    shares = list[float]()
    cost = overhead_lab.lab_cost("ddp", pairs=2, show_progress=shares.append)
    assert shares == [0.25, 0.5, 0.75, 1.0]
    assert cost.wall.n == cost.cpu.n == len(cost.observers) == 2
    assert cost.layout == "dp8"
    assert cost.steps >= 1
    assert cost.stolen.mean > cost.cpu.mean
    assert 0.1 < cost.iteration_s < 30, "four layers of 10 ms, twice as long backward, on a machine with other work"
    assert any(share > 0 for share in cost.observers)
    assert [row.unit for row in rows_of_lab(cost)] == ["%"] * 4
    assert not [lab.name for lab in labs() if lab.owner_pid == os.getpid()]
