"""Ends of connections: who is at the other end, and which are dead."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.tcp_rows import dead_end, end

from whichrank.locate.links import ends_of, loses_data
from whichrank.model.telemetry import TCP_ROW


def test_two_ends_of_one_connection_find_each_other() -> None:
    # GIVEN both ends of a connection over IPv4, of one over IPv6, and one that leads elsewhere
    rows = np.concatenate(
        (
            end(0, "10.0.0.1/4000", "10.0.0.2/5000"),
            end(3, "10.0.0.2/5000", "10.0.0.1/4000"),
            end(1, "fd00::1/77", "fd00::2/78"),
            end(2, "fd00::2/78", "fd00::1/77"),
            end(1, "10.0.0.1/4001", "10.0.0.9/29500"),
        )
    )

    # WHEN they are joined THEN each knows the rank at its other end, and nobody is invented
    assert ends_of(rows, np.array([0, 1, 0, 1, 0])).peer.tolist() == [3, 0, 2, 1, -1]


def test_loopback_addresses_mean_something_on_one_node_only() -> None:
    # GIVEN two nodes with connections over loopback, by chance with the same ports
    rows = np.concatenate([end(r, "127.0.0.1/1", "127.0.0.1/2") for r in (0, 2)])
    rows = np.concatenate((rows, *[end(r, "127.0.0.1/2", "127.0.0.1/1") for r in (1, 3)], end(4, "::1/1", "::1/2")))

    peers = ends_of(rows, np.array([0, 1, 0, 1, 0])).peer.tolist()

    assert peers[:4] == [1, 3, 0, 2]
    assert peers[4] == -1


@pytest.mark.parametrize(
    ("info", "dead", "answered"),
    [
        ({"retransmits": 3, "unacked": 1, "last_ack_recv_ms": 5000}, True, False),
        ({"retransmits": 3, "backoff": 1, "unacked": 1, "last_ack_recv_ms": 5000}, True, False),  # host unreachable
        ({"retransmits": 2, "unacked": 1, "last_ack_recv_ms": 900}, False, False),
        # a receiver that lives and does not read: it acknowledges each probe of its closed window
        ({"backoff": 6, "unsent_bytes": 3_782_144, "last_ack_recv_ms": 5988}, False, False),
        ({"backoff": 6, "unsent_bytes": 3_782_144, "last_ack_recv_ms": 80}, False, True),
        ({"unacked": 40, "last_ack_recv_ms": 3}, False, True),
        ({"last_ack_recv_ms": 60_000}, False, False),
    ],
)
def test_dead_is_what_retransmits_without_an_answer(info: dict[str, int], dead: bool, answered: bool) -> None:
    ends = ends_of(end(0, "10.0.0.1/1", "10.0.0.2/2", **info), np.zeros(1, np.int64))

    assert (ends.dead.tolist(), ends.answered.tolist()) == ([dead], [answered])


@pytest.mark.parametrize(("tries", "dead"), [(3, False), (4, True)])
def test_where_paths_lose_data_one_more_try_makes_a_dead_one(tries: int, dead: bool) -> None:
    rows = end(0, "10.0.0.1/1", "10.0.0.2/2", retransmits=tries, unacked=1, last_ack_recv_ms=5000)
    assert ends_of(rows, np.zeros(1, np.int64), np.ones(1, np.bool_)).dead.tolist() == [dead]


@pytest.mark.parametrize(
    ("place", "after", "loses"),
    [
        ("10.0.0.1/1", {"total_retrans": 70, "data_segs_out": 3000}, True),
        ("10.0.0.1/1", {"total_retrans": 23, "data_segs_out": 14_000}, False),  # a burst that overflows a queue
        ("10.0.0.1/1", {"total_retrans": 22, "data_segs_out": 1100}, False),  # few segments in all
        ("10.0.0.1/1", {"total_retrans": 70, "data_segs_out": 3000, "retransmits": 3}, False),  # no answer: dead
        ("10.0.0.1/9", {"total_retrans": 70, "data_segs_out": 3000}, False),  # another connection
        ("127.0.0.1/1", {"total_retrans": 70, "data_segs_out": 3000}, False),
    ],
)
def test_paths_lose_data_if_they_work_and_much_is_sent_again(place: str, after: dict[str, int], loses: bool) -> None:
    # GIVEN a connection that has sent 15 of 1,000 segments again WHEN it is looked at once more
    remote = "127.0.0.1/2" if place.startswith("127") else "10.0.0.2/2"
    first = end(0, place.replace("/9", "/1"), remote, total_retrans=15, data_segs_out=1000)
    # THEN what counts is what it has sent since then
    assert loses_data(end(0, place, remote, **after), first) == loses


def test_ranks_that_share_an_address_and_port_are_told_apart_by_the_other_end() -> None:
    # GIVEN two processes with one local port, connected to different ranks
    rows = np.concatenate(
        (
            end(0, "10.0.0.1/40000", "10.0.0.4/5004"),
            end(1, "10.0.0.1/40000", "10.0.0.5/5005"),
            end(4, "10.0.0.4/5004", "10.0.0.1/40000"),
            end(5, "10.0.0.5/5005", "10.0.0.1/40000"),
        )
    )
    assert ends_of(rows, np.array([0, 0, 1, 1])).peer.tolist() == [4, 5, 0, 1]


def test_no_connections_at_all() -> None:
    assert ends_of(np.zeros(0, TCP_ROW), np.zeros(0, np.int64)).peer.tolist() == []


def test_a_dead_end_knows_how_often_it_tried() -> None:
    assert ends_of(dead_end(0, "10.0.0.1/1", "10.0.0.2/2"), np.zeros(1, np.int64)).tries.tolist() == [4]
