"""A node that is unplugged, a path that loses everything: reported by the kernels of the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.nodes.three_nodes import Nodes

from whichrank.model.incident import Cause

pytestmark = pytest.mark.lab


def test_an_unplugged_node_is_named_and_nobody_else(nodes: Nodes, nursery: Path) -> None:
    # GIVEN a job over three nodes
    nodes.run("whichrank.testbed.demo.workloads.ddp", nursery)
    nodes.wait_under_way()

    # WHEN the cable of the third is pulled out
    nodes.unplug(2)

    # THEN its rank is named, long before the hang timeout, and nobody else in any word
    word = nodes.wait_for_alert(50.0)
    named = {c.rank for i in nodes.incidents() for c in i.culprits}
    assert (word.cause, named) == (Cause.NODE_LOST, {2}), nodes.logs()


def test_a_path_that_loses_everything_is_reported_as_a_link_and_no_rank_is_blamed(nodes: Nodes, nursery: Path) -> None:
    # GIVEN a job over three nodes
    nodes.run("whichrank.testbed.demo.workloads.ddp", nursery)
    nodes.wait_under_way()

    # WHEN nothing of what node 1 sends reaches node 2 any more, while both still talk to node 0
    nodes.drop(1, 2)

    # THEN the link is named, in one direction or both, and no rank in any word
    word = nodes.wait_for_alert(50.0)
    links = {(link.src, link.dst) for link in word.links}
    assert word.cause == Cause.TRANSPORT, nodes.logs()
    assert links, nodes.logs()
    assert links <= {(1, 2), (2, 1)}, nodes.logs()
    assert not any(i.culprits for i in nodes.incidents()), nodes.logs()
