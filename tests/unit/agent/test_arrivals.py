"""The pace at which data came in, from the tables of two snapshots."""

from __future__ import annotations

import itertools
from typing import Any, cast

import numpy as np
import pytest
from tests.unit.tcp_rows import address, end

from whichrank.agent.arrivals import LEAST_BYTES, Arrivals
from whichrank.agent.rank import RankWatch
from whichrank.errors import RingFormatError
from whichrank.model.rows import CONNECTION, PACES

MB = 1_000_000
SLOW, FAST = 2, 6


class Rank:
    """A rank with one connection; all that is asked of a RankWatch here."""

    def __init__(self, rank: int, local: str, remote: str) -> None:
        self.rank, self.ended_ns, self.reader = rank, 0, self
        self.table = np.zeros(1, CONNECTION)
        self.table["state"] = 1
        for side, text in (("local", local), ("remote", remote)):
            host, port = text.split("/")
            self.table[f"{side}_addr"], self.table[f"{side}_port"] = np.void(address(host)), int(port)
        self.is_cut = False

    def read(self, pace: int, count: int, rate: float) -> None:
        """Bytes that came at this rate."""
        self.table["pace"]["bytes"][0, pace] += count
        self.table["pace"]["ns"][0, pace] += int(count / rate * 1e9)

    def connections(self) -> np.ndarray[Any, Any]:
        if self.is_cut:
            raise RingFormatError("cut", where="ring")
        return self.table.copy()


A, B = "10.0.0.1/5000", "10.0.0.2/6000"


CLOCK = itertools.count(0.0, 5.0)


def snapshot(arrivals: Arrivals, *ranks: Rank, at_s: float | None = None) -> np.ndarray[Any, Any]:
    rows = np.concatenate([end(0, A, B), end(1, B, A), end(0, A, "10.0.0.9/1")])
    arrivals.add_to(rows, cast("list[RankWatch]", list(ranks)), next(CLOCK) if at_s is None else at_s)
    return rows


def test_polling_more_often_loses_nothing_of_what_came_in_bursts() -> None:
    # GIVEN looks twice a second at a rank to which data come for half a second in four
    rank, arrivals = Rank(0, A, B), Arrivals()
    paces = []
    for step in range(40):
        if step % 8 == 0:
            rank.read(SLOW, 7 * MB, 6e6)
        paces.append(snapshot(arrivals, rank, at_s=step / 2)["arrival_rate"][0])
    # THEN their pace is known all the time
    assert paces == pytest.approx([6e6] * 40)
    # AND is forgotten some seconds after the last of them
    assert [snapshot(arrivals, rank, at_s=at_s)["arrival_rate"][0] for at_s in (20.4, 25.0, 25.4)] == [
        pytest.approx(6e6), 0.0, 0.0,
    ]  # fmt: skip


def test_the_pace_is_that_of_most_bytes_since_the_snapshot_before() -> None:
    # GIVEN a rank to which data came fast
    rank, other, arrivals = Rank(0, A, B), Rank(1, B, A), Arrivals()
    rank.read(FAST, 50 * MB, 5e9)
    rows = snapshot(arrivals, rank, other)
    assert rows["arrived_bytes"].tolist() == [50 * MB, 0, 0]
    assert rows["arrival_rate"].tolist() == pytest.approx([5e9, 0, 0])

    # WHEN most of what comes then is slow THEN that is its pace, whatever was before; the other end knows of nothing
    rank.read(SLOW, 7 * MB, 6e6)
    rank.read(FAST, 3 * MB, 5e9)
    rows = snapshot(arrivals, rank, other)
    assert rows["arrived_bytes"].tolist() == [60 * MB, 0, 0]
    assert rows["arrival_rate"].tolist() == pytest.approx([6e6, 0, 0])

    # AND if nothing comes any more, no pace is reported
    assert snapshot(arrivals, rank, other)["arrival_rate"].tolist() == [0, 0, 0]


def test_few_bytes_have_no_pace() -> None:
    rank, arrivals = Rank(0, A, B), Arrivals()
    rank.read(SLOW, LEAST_BYTES - 1, 6e6)
    assert snapshot(arrivals, rank)["arrival_rate"].tolist() == [0, 0, 0]


def test_a_row_that_was_given_to_another_connection_begins_anew() -> None:
    rank, arrivals = Rank(0, A, "10.0.0.9/1"), Arrivals()
    rank.read(SLOW, 50 * MB, 6e6)
    snapshot(arrivals, rank)
    other = Rank(0, A, B)
    other.read(FAST, 20 * MB, 5e9)
    assert snapshot(arrivals, other)["arrival_rate"].tolist() == pytest.approx([5e9, 0, 0])


def test_ends_that_were_closed_and_opened_again_are_those_of_the_open_row() -> None:
    rank, arrivals = Rank(0, A, B), Arrivals()
    rank.read(SLOW, 50 * MB, 6e6)
    rank.table = np.concatenate((rank.table, rank.table))
    rank.table["state"][0] = 2
    rank.table["pace"][1] = 0
    snapshot(arrivals, rank)
    rank.table["pace"]["bytes"][1, FAST], rank.table["pace"]["ns"][1, FAST] = 20 * MB, 4_000_000
    rows = snapshot(arrivals, rank)
    assert (rows["arrived_bytes"][0], rows["arrival_rate"][0]) == (20 * MB, pytest.approx(5e9))


def test_a_ring_that_cannot_be_read_says_nothing_and_harms_no_other() -> None:
    rank, other, arrivals = Rank(0, A, B), Rank(1, B, A), Arrivals()
    rank.is_cut = True
    other.read(SLOW, 7 * MB, 6e6)
    assert snapshot(arrivals, rank, other)["arrival_rate"].tolist() == pytest.approx([0, 6e6, 0])
    assert snapshot(arrivals)["arrived_bytes"].tolist() == [0, 0, 0]


def test_bytes_of_all_classes_are_counted() -> None:
    rank, arrivals = Rank(0, A, B), Arrivals()
    for pace in range(PACES):
        rank.read(pace, MB, 4.0 ** (pace + 9))
    rows = snapshot(arrivals, rank)
    assert rows["arrived_bytes"][0] == PACES * MB
    assert rows["arrival_rate"][0] == pytest.approx(4.0 ** (PACES // 2 - 1 + 9))
