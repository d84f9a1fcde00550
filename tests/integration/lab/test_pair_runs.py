"""Training on a pair of nodes takes longer where a node sends more slowly, and leaves nothing behind."""

from __future__ import annotations

import pytest

from whichrank.bench.pair_runs import PairRuns
from whichrank.lab.box import Lab
from whichrank.lab.network import can_be_here, processes_in
from whichrank.lab.topology import Topology

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc"),
]


def test_a_node_that_sends_slowly_makes_its_pair_slow() -> None:
    lab = Lab.make(Topology(2), "200mbit")
    try:
        runs = PairRuns(lab.network, local=2)
        before_s = runs.train([(0, 1)])[0, 1]
        lab.network.limit(1, "20mbit")
        after_s = runs.train([(0, 1)])[0, 1]
        assert before_s is not None
        assert after_s is None or after_s > before_s
        assert not [pid for place in lab.network.topology.places for pid in processes_in(lab.network.namespace(place))]
    finally:
        lab.close()
