"""Messages between neighbours in pipelines, each counted once.

A message that was sent counts from when it was sent, though it may stay in flight for long: a library waits for it only
at the end of an iteration, and its receiver may hang. One that comes counts when it has come. What is in flight is
reported again and again, and once more when it is over, so it is remembered which of these were counted; those of
earlier iterations are let go.

A group that is made without a description may be a pipeline, as may the default group. Messages there are taken as
those of a pipeline too, unless the rank has one that is described.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whichrank.model.kinds import Kind
from whichrank.model.roles import role_of_description
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]


class Message(IntEnum):
    """Which one. Of a pipeline of two ranks the first one's go ahead and the other one's back, whatever they carry."""

    AHEAD = 0
    """Sent to the next rank."""
    ARRIVED = 1
    """Come from the rank before."""
    BACK = 2
    """Sent to the rank before."""
    RETURNED = 3
    """Come from the next rank."""
    ELSEWHERE = 4
    """Sent to another rank, or come from there."""
    SENT_BY_LAST = 5
    """The last rank has sent one: the same once more."""


Events = tuple[Ints, int, Ints, Ints]
"""Ranks of some messages, which sort they are, their ordinals and their communicators."""


_ORDINALS: Final = (1 << 32) - 1
"""The part of a key that is the ordinal."""


class _Messages(NamedTuple):
    """Columns, (n,) each."""

    rank: Ints
    comm: Ints
    place: Ints
    peer: Ints
    ordinal: Ints
    kind: Ints

    @property
    def key(self) -> Ints:
        """A number of each."""
        return self.rank << 32 | self.ordinal

    def those(self, which: Bools) -> _Messages:
        """Some of them."""
        return _Messages._make(column[which] for column in self)


class PipelineMessages:
    """Finds them among operations. Of ranks that make steps it remembers those in flight, which rings limit.

    Args:
        comms: All communicators.

    Attributes:
        is_described: By communicator, whether it says that it is a pipeline.
    """

    def __init__(self, comms: Communicators) -> None:
        self._comms = comms
        self.is_described = np.zeros(0, np.bool_)
        self._may_be = np.zeros(0, np.bool_)  # by communicator, whether it says nothing else
        self._counted = np.zeros(0, np.int64)  # keys of messages in flight that were counted

    def new(self, done: Completed, flight: Rows, step_at: Ints) -> list[Events]:
        """Those that are new.

        Args:
            done: Completed operations.
            flight: Operations in flight, rows of OPS.
            step_at: By rank, the ordinal of its latest step; ranks behind have made none.
        """
        self._learn_communicators()
        over, flying = self._of_done(done), self._of_flight(flight)
        is_new = ~np.isin(over.key, self._counted) if len(self._counted) else np.ones(len(over.key), np.bool_)
        found = self._sorted_out(over.those(is_new))
        if not len(self._counted) and not len(flying.key):
            return found
        makes_steps = _of_ranks(step_at, flying.rank) > 0
        is_new = makes_steps & ~np.isin(flying.key, over.key) & ~np.isin(flying.key, self._counted)
        is_over = np.isin(self._counted, over.key)
        is_of_before = (self._counted & _ORDINALS) <= _of_ranks(step_at, self._counted >> 32)
        self._counted = np.concatenate((self._counted[~is_over & ~is_of_before], flying.key[is_new]))
        return found + self._sorted_out(flying.those(is_new))

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        self._counted = self._counted[self._counted >> 32 != rank]

    def _of_done(self, done: Completed) -> _Messages:
        at = np.flatnonzero((done["kind"] == Kind.SEND) | (done["kind"] == Kind.RECV))
        at = at[self._may_be[done.comm[at]] & (done.place[at] >= 0)]
        columns = (done.rank, done.comm, done.place, done["peer"], done["ordinal"], done["kind"])
        return _Messages._make(column[at].astype(np.int64) for column in columns)

    def _of_flight(self, flight: Rows) -> _Messages:
        flight = flight[(flight["kind"] == Kind.SEND) & self._may_be[flight["comm"]]]
        place = self._comms.group_ranks(flight["comm"], flight["rank"])
        columns = (flight["rank"], flight["comm"], place, flight["peer"], flight["ordinal"], flight["kind"])
        return _Messages(*columns).those(place >= 0)

    def _sorted_out(self, messages: _Messages) -> list[Events]:
        """Messages by sort."""
        rank, comm, place, peer, ordinal, kind = messages
        size, is_send = self._comms.size[comm], kind == Kind.SEND
        step = (peer - place) % np.maximum(size, 1)
        to_next = np.where(size == 2, place == 0, step == 1)
        to_before = np.where(size == 2, place == 1, (step == size - 1) & (size > 1))
        return [
            (rank[which], int(what), ordinal[which], comm[which])
            for what, which in (
                (Message.AHEAD, is_send & to_next), (Message.ARRIVED, ~is_send & to_before),
                (Message.BACK, is_send & to_before), (Message.RETURNED, ~is_send & to_next),
                (Message.ELSEWHERE, ~to_next & ~to_before),
                (Message.SENT_BY_LAST, is_send & (place == size - 1) & (size > 1)),
            )
        ]  # fmt: skip

    def _learn_communicators(self) -> None:
        if new := self._comms.info[len(self._may_be) :]:
            roles = [role_of_description(info.desc) for info in new]
            self.is_described = np.append(self.is_described, [role == "pp" for role in roles])
            self._may_be = np.append(self._may_be, [role in ("pp", None) for role in roles])


def _of_ranks(column: Ints, ranks: Ints) -> Ints:
    """The value of each of these ranks, 0 where there is none."""
    found, is_known = np.zeros(len(ranks), np.int64), ranks < len(column)
    found[is_known] = column[ranks[is_known]]
    return found
