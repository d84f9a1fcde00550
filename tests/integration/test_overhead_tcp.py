"""The cost of a look at connections is measured on as many as there are."""

from __future__ import annotations

from whichrank.testbed.bench.overhead_tcp import tcp_cost


def test_every_connection_is_reported_at_every_snapshot() -> None:
    cost = tcp_cost(ranks=2, connections=3, polls=2)
    assert cost.sockets == 2 * 2 * 3
    assert len(cost.poll_ms) == len(cost.share_percent) == 2
    assert min(cost.poll_ms) > 0
