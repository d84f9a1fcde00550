"""The kernel's view of real connections of this process."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import numpy as np
import pytest

from whichrank.agent.rank import RankWatch
from whichrank.agent.tcp import CLOSELY_EVERY_NS, REPORTED, Connections
from whichrank.locate.links import ends_of
from whichrank.model.rows import CONNECTION


class Me:
    """This process as a rank; all that is asked of a RankWatch here."""

    def __init__(self, rank: int, pid: int = os.getpid(), ended_ns: int = 0) -> None:
        self.rank, self.pid, self.ended_ns, self.reader = rank, pid, ended_ns, self

    def connections(self) -> np.ndarray[Any, Any]:
        return np.zeros(0, CONNECTION)


def rows_of(*ranks: Me) -> np.ndarray[Any, Any]:
    connections = Connections()
    rows = connections.rows(cast("list[RankWatch]", list(ranks)), closely=False, every_s=5.0)
    connections.close()
    return rows


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with ExitStack() as stack:
        try:
            server = stack.enter_context(socket.create_server((request.param, 0), family=family))
        except OSError:
            pytest.skip("no IPv6 here")
        one = stack.enter_context(socket.create_connection(server.getsockname()[:2]))
        other = stack.enter_context(server.accept()[0])
        yield one, other


def test_a_connection_is_reported_with_what_the_kernel_knows_of_it(pair: tuple[socket.socket, socket.socket]) -> None:
    # GIVEN data that was sent and not read
    one, other = pair
    one.sendall(b"x" * 1000)

    # WHEN the kernel is asked for the sockets of this process
    rows = rows_of(Me(3))

    # THEN both ends are there and know each other, with bytes and times; the listening socket is not
    mine, theirs = (rows[rows["local_port"] == s.getsockname()[1]] for s in (one, other))
    mine = mine[mine["remote_port"] == other.getsockname()[1]]
    theirs = theirs[theirs["remote_port"] == one.getsockname()[1]]
    assert (len(mine), len(theirs)) == (1, 1)
    assert rows["rank"].tolist() == [3] * len(rows)
    assert mine["info"]["bytes_acked"][0] >= 1000
    assert theirs["unread_bytes"][0] == 1000
    assert theirs["info"]["bytes_received"][0] == 1000
    assert mine["info"]["rtt_us"][0] > 0
    ends = ends_of(np.concatenate((mine, theirs)), np.zeros(2, np.int64))
    assert ends.peer.tolist() == [3, 3]
    assert not ends.dead.any()


@pytest.mark.usefixtures("pair")
def test_sockets_of_others_are_not_reported() -> None:
    assert len(rows_of(Me(0, pid=1 << 22))) == 0
    assert len(rows_of(Me(0, ended_ns=5))) == 0
    assert len(rows_of(Me(-1))) == 0


@pytest.mark.usefixtures("pair")
def test_it_polls_seldom_and_more_often_on_suspicion(monkeypatch: pytest.MonkeyPatch) -> None:
    second = 2 * CLOSELY_EVERY_NS
    now_ns = 100 * second
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns)
    connections, ranks = Connections(), cast("list[RankWatch]", [Me(0)])

    seen: set[int] = set()

    def polls(seconds: int, closely: bool = False, every_s: float = 5.0) -> int:
        """How often it looks in this time, asked four times a second."""
        nonlocal now_ns
        read = set()
        for _ in range(4 * seconds):
            read.update(connections.rows(ranks, closely=closely, every_s=every_s)["read_ns"].tolist())
            now_ns += second // 4
        new = read - seen
        seen.update(read)
        return len(new)

    # at first after 0, 1, 3, 7 and 12 s, then every five; twice a second on suspicion, and soon after groups were made
    assert polls(15) == 5
    assert polls(100) == 20
    assert polls(10, closely=True) == 20
    connections.expect_new()
    assert polls(4) == 3
    # where slowness is judged over a short window as often as the rest is read, but no more than twice a second
    assert polls(12, every_s=0.75) == 16
    assert polls(12, every_s=0.1) == 24
    # an agent's look that comes a little sooner than half a second after the last one counts
    now_ns += 10 * second
    soon = set[int]()
    for _ in range(10):
        soon.update(connections.rows(ranks, closely=True, every_s=5.0)["read_ns"].tolist())
        now_ns += round(0.49 * second)
    assert len(soon - seen) == 10
    connections.close()


@pytest.mark.usefixtures("pair")
def test_a_snapshot_is_reported_more_than_once_since_a_batch_may_find_no_taker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 100 * CLOSELY_EVERY_NS)
    connections, ranks = Connections(), cast("list[RankWatch]", [Me(0)])
    reported = [len(connections.rows(ranks, closely=False, every_s=5.0)) > 0 for _ in range(REPORTED + 2)]
    assert reported == [True] * REPORTED + [False] * 2
    connections.close()


@pytest.mark.usefixtures("pair")
def test_a_kernel_that_does_not_answer_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> socket.socket:
        raise PermissionError(errno.EPERM, "no netlink here")

    connections, ranks = Connections(), cast("list[RankWatch]", [Me(0)])
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", refuse)
        assert len(connections.rows(ranks, closely=False, every_s=5.0)) == 0
    assert len(connections.rows(ranks, closely=True, every_s=5.0)) == 0


@pytest.mark.usefixtures("pair")
def test_a_kernel_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    connections, ranks = Connections(), cast("list[RankWatch]", [Me(0)])
    with monkeypatch.context() as patch:
        patch.setattr(connections, "_dump", lambda _: (_ for _ in ()).throw(OSError(errno.ENOBUFS, "no buffer space")))
        assert len(connections.rows(ranks, closely=False, every_s=5.0)) == 0
    connections.expect_new()
    monkeypatch.setattr("time.monotonic_ns", lambda: 1 << 62)
    assert len(connections.rows(ranks, closely=False, every_s=5.0)) > 0
    connections.close()
