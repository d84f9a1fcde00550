"""The cost of a look at connections is measured on as many as there are."""

from __future__ import annotations

from whichrank.testbed.bench.overhead_tcp import tcp_cost


def test_every_connection_is_told_at_every_look() -> None:
    cost = tcp_cost(ranks=2, connections=3, looks=2)
    assert cost.sockets == 2 * 2 * 3
    assert len(cost.look_ms) == len(cost.share_percent) == 2
    assert min(cost.look_ms) > 0
