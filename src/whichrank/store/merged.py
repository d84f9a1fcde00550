"""Batches of several agents as one: their rows one after the other, and of which batch each row is.

NumPy takes as long for the rows of one agent as for those of a hundred, and of a large job thousands of agents report
in a second. So what has come at once is taken at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichrank.model.telemetry import RANK_ROW, Batch

UNKNOWN_DELAY_S: Final = 10.0
"""Assumed bound of an agent's delay until its first round trip."""
_MOST_NS: Final = 1 << 62
"""Of a time, either way: sums of two still fit."""

Ints = NDArray[np.int64]


class Merged:
    """Batches of different agents that have come at one time.

    Args:
        batches: One of each agent.
        agents: The number of each agent.

    Attributes:
        sent_ns: When each was sent, on the clock of its host, (B,).
        delay_s: How long it may have been under way, (B,).
    """

    def __init__(self, batches: Sequence[Batch], agents: Sequence[int]) -> None:
        self.batches = batches
        self.agents: Ints = np.array(agents, np.int64)
        self.sent_ns = _possible([batch.sent_ns for batch in batches])
        bound_ns = _possible([batch.delay_bound_ns for batch in batches])
        self.delay_s = np.where(bound_ns >= 0, bound_ns / 1e9, UNKNOWN_DELAY_S)

    def rows(self, column: str, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The rows of one column of all batches.

        Args:
            column: The name of the column in a `Batch`.
            dtype: Of its rows.
        """
        parts = self._parts(column)
        return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), dtype)

    def batch_of(self, column: str, dtype: np.dtype[Any]) -> Ints:
        """The index of the batch of each row of one column."""
        sizes = self._sizes(column, dtype)
        return np.repeat(np.arange(len(sizes)), sizes)

    def batch_at(self, column: str, dtype: np.dtype[Any], places: Ints) -> Ints:
        """The index of the batch of some rows of one column, by their places."""
        return np.searchsorted(np.cumsum(self._sizes(column, dtype)), places, side="right")

    def _parts(self, column: str) -> list[bytes]:
        return list(map(attrgetter(column), self.batches))

    def _sizes(self, column: str, dtype: np.dtype[Any]) -> Ints:
        sizes = np.fromiter(map(len, self._parts(column)), np.int64, len(self.batches))
        sizes //= dtype.itemsize
        return sizes

    @cached_property
    def states(self) -> np.ndarray[Any, Any]:
        """Of ranks, rows of RANK_ROW."""
        return self.rows("ranks", RANK_ROW)

    @property
    def has_rank_twice(self) -> bool:
        """Whether two agents report the same rank."""
        rank = self.states["rank"]
        if len(self.batches) == 1 or (rank[1:] > rank[:-1]).all():
            return False
        return len(np.unique(rank)) < len(rank)


def _possible(ns: list[int]) -> Ints:
    """Times that a clock can show: nobody's number makes us fail."""
    try:
        return np.clip(np.array(ns, np.int64), -_MOST_NS, _MOST_NS)
    except OverflowError:
        return np.array([min(max(one, -_MOST_NS), _MOST_NS) for one in ns], np.int64)


def groups(batches: Sequence[Batch]) -> list[list[Batch]]:
    """These batches in their order, in as few groups as can be without two of one agent."""
    found: list[list[Batch]] = []
    names: set[str] = set()
    for batch in batches:
        if not found or batch.agent in names:
            found.append([])
            names.clear()
        found[-1].append(batch)
        names.add(batch.agent)
    return found


def with_portions(batches: Sequence[Batch]) -> list[Batch]:
    """These batches, new ones, in their order; records that were sent before the rest of a batch are in it again."""
    found: list[Batch] = []
    before: dict[str, list[Batch]] = {}  # by agent, portions whose rest is to come
    for batch in batches:
        portions = before.pop(batch.agent, [])
        if portions and batch.sequence != portions[-1].sequence + 1:
            found.append(_joined(portions))
            portions = []
        portions.append(batch)
        if is_portion(batch):
            before[batch.agent] = portions
        else:
            found.append(_joined(portions))
    return found + [_joined(portions) for portions in before.values()]


def _joined(portions: list[Batch]) -> Batch:
    """The last of them, with the records of all."""
    if len(portions) == 1:
        return portions[0]
    return msgspec.structs.replace(portions[-1], records=b"".join([part.records for part in portions]))


def is_portion(batch: Batch) -> bool:
    """Whether it has nothing but records: of many an agent sends a part before the rest (`agent.outbox`)."""
    if batch.ranks or not batch.records:
        return False
    others = (
        batch.comms, batch.pairs, batch.inflight, batch.waits, batch.rates, batch.connections,
        batch.splits, batch.comm_info, batch.events,
    )  # fmt: skip
    return not any(others)
