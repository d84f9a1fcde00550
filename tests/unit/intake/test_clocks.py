"""Clocks of traces, made one by the operations that end for all members at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whichrank.intake.clocks import behind_ns
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import RECORD_REPORTED

HOUR_NS = 3600 * 10**9


def records(ends: dict[int, dict[int, int]], clock_ns: int, kind: Kind = Kind.ALL_REDUCE) -> NDArray[Any]:
    """Operations of a rank.

    Args:
        ends: By communicator and number, when it ended.
        clock_ns: What is added by the clock of the rank.
        kind: Of all.
    """
    rows = [(comm, counter, at) for comm, of in ends.items() for counter, at in of.items()]
    reported = np.zeros(len(rows), RECORD_REPORTED)
    reported["comm"] = [row[0] for row in rows]
    reported["row"]["counter"] = [row[1] for row in rows]
    reported["row"]["t_end_ns"] = [row[2] + clock_ns for row in rows]
    reported["row"]["kind"] = kind
    return reported


def test_clocks_that_are_hours_apart_are_made_one_through_groups_that_share_ranks() -> None:
    # GIVEN a chain of groups of two, a late entry now and then, noise, and clocks that are hours apart
    rng = np.random.default_rng(1)
    clocks = (rng.uniform(1, 100, 8) * HOUR_NS).astype(np.int64)
    ends = {comm: {n: int(1e9 * n + 1e6 * comm) for n in range(1, 40)} for comm in range(1, 8)}
    reported = {}
    for rank in range(8):
        noise = {comm: {n: at + int(rng.normal(0, 2000)) for n, at in of.items()} for comm, of in ends.items()}
        mine = {comm: of for comm, of in noise.items() if comm in (rank, rank + 1)}
        for of in mine.values():
            of[7] += int(3e8)  # an end that was seen late
        reported[rank] = records(mine, int(clocks[rank]))
    behind = behind_ns(reported)
    assert min(behind.values()) == 0
    assert [behind[rank] for rank in range(8)] == pytest.approx(clocks.max() - clocks, abs=5000)


def test_ranks_that_nothing_connects_keep_their_clocks() -> None:
    reported = {rank: records({rank + 1: {1: 10**9}}, rank * HOUR_NS) for rank in range(3)}
    assert behind_ns(reported) == {0: 0, 1: 0, 2: 0}
    assert behind_ns({}) == {}


def test_operations_that_a_member_may_leave_early_say_nothing() -> None:
    reported = {rank: records({1: {1: 10**9}}, rank * HOUR_NS, Kind.BROADCAST) for rank in range(2)}
    assert behind_ns(reported) == {0: 0, 1: 0}
