"""Training on a pair of nodes is timed, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.testbed.bench.pair_runs import PairRuns
from whichrank.testbed.lab.box import Lab
from whichrank.testbed.lab.namespaces import processes_in
from whichrank.testbed.lab.network import can_be_here
from whichrank.testbed.lab.topology import Topology

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc"),
]


def test_a_pair_of_nodes_trains_and_leaves_nothing(nursery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichrank.testbed.bench.pair_runs._LONGEST_S", 120.0)  # other tests take the cores
    lab = Lab.make(Topology(2), "200mbit")
    try:
        iteration_s = PairRuns(lab.network, 2, nursery).train([(0, 1)])[0, 1]
        assert iteration_s is not None
        assert iteration_s > 0.005, "four layers of a millisecond at least"
        assert not [pid for place in lab.network.topology.places for pid in processes_in(lab.network.namespace(place))]
    finally:
        lab.close()
