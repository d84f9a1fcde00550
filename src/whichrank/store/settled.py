"""Ranks that do what they always do: what they issue is held against their periods in one table, all ranks at once.

A sequence (`detect.period`) is an object for each rank, and taking a batch into each takes longer than all the rest of
a large job. But most ranks have a period, and go on with it. Of those the table has the period, the place in it that
comes next, and how many operations have come since their sequence was told. A rank leaves the table, and its sequence
is told, when something else comes than its period says. Whoever asks for the sequence has it told first.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.periods import Periods, hold_periods
from whichrank.detect.period import Sequence
from whichrank.model.sequence import Tokens

MOST_TOKENS: Final = 1 << 26
"""Of all periods: 256 MiB. Ranks for which there is no room are not taken in."""
TELL_AFTER: Final = 4096
"""Operations of a rank, after which its sequence is told of them in any case."""
_OUT: Final = -1
"""The place of a rank that is not in the table."""


class Settled:
    """The table. At most `MOST_TOKENS` tokens, and six numbers for each rank."""

    def __init__(self) -> None:
        self._at = np.zeros(0, np.int64)  # where the period of a rank begins in `_periods`
        self._length = np.zeros(0, np.int64)  # of it
        self._place = np.zeros(0, np.int64)  # in it, of what comes next
        self._next = np.zeros(0, np.int64)  # ordinal of what comes next
        self._untold = np.zeros(0, np.int64)
        self._since = np.zeros(0, np.int64)  # ordinal of the first operation for which the period is known to hold
        self._periods = np.zeros(0, np.uint32)
        self._used = 0

    def has(self, rank: int) -> bool:
        """Whether this rank is in the table."""
        return rank < len(self._at) and self._at[rank] != _OUT

    def are_in(self, ranks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """As `has`, for each of these."""
        known = ranks < len(self._at)
        found = np.zeros(len(ranks), np.bool_)
        found[known] = self._at[ranks[known]] != _OUT
        return found

    def enter(self, rank: int, sequence: Sequence) -> None:
        """Take in a rank that is settled, if there is room."""
        period = sequence.template
        if self._used + len(period) > len(self._periods) and not self._make_room(len(period)):
            return
        self._grow(rank + 1)
        self._periods[self._used : self._used + len(period)] = period
        self._at[rank], self._length[rank], self._place[rank] = self._used, len(period), 0
        self._next[rank], self._untold[rank] = sequence.last_ordinal + 1, 0
        self._since[rank] = self._next[rank] - len(period)
        self._used += len(period)

    def leave(self, rank: int, sequence: Sequence) -> None:
        """Tell its sequence what has come, and let go of it."""
        self.tell(rank, sequence)
        self._at[rank] = _OUT

    def forget(self, rank: int) -> None:
        """Let go of a rank whose sequence is forgotten."""
        if self.has(rank):
            self._at[rank] = _OUT

    def tokens(self) -> Tokens:
        """All tokens of the periods, each once."""
        return np.unique(self._periods[: self._used])

    def take(
        self, rank: NDArray[np.int64], ordinals: NDArray[np.int64], tokens: Tokens
    ) -> tuple[NDArray[np.bool_], list[int], list[int]] | None:
        """Take operations, by rank and ordinal, each once.

        Returns:
            None if they are in another order; nothing is taken then. Else which of them are dealt with; ranks in the
            table that have issued something else, which have to leave; and ranks whose sequences are to be told.
        """
        table = Periods.of(
            ranks=len(self._at), tokens=len(self._periods), at=self._at, length=self._length, place=self._place,
            next=self._next, untold=self._untold, periods=self._periods,
        )  # fmt: skip
        return hold_periods(table, rank, ordinals, tokens, TELL_AFTER)

    def before(
        self, rank: NDArray[np.int64], ordinal: NDArray[np.int64], count: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
        """The tokens of the operations before some, as `Sequences.before`; known by the periods of ranks in the table.

        Args:
            rank: Who has issued these, (n,).
            ordinal: How many operations of the rank were begun before each of them, (n,).
            count: How many are wanted.

        Returns:
            The tokens, the nearest first, (n, count), and where they are known, (n,).
        """
        tokens, is_known = np.zeros((len(rank), count), np.uint32), np.zeros(len(rank), np.bool_)
        inside = np.flatnonzero(rank < len(self._at))
        inside = inside[self._at[rank[inside]] != _OUT]
        of, first = rank[inside], ordinal[inside] - count + 1
        holds = (first >= self._since[of]) & (ordinal[inside] < self._next[of])
        inside, of = inside[holds], of[holds]
        back = self._next[of] - ordinal[inside]
        place = (self._place[of] - back)[:, None] - np.arange(count)
        tokens[inside] = self._periods[self._at[of][:, None] + place % self._length[of][:, None]]
        is_known[inside] = True
        return tokens, is_known

    def tell(self, rank: int, sequence: Sequence) -> None:
        """Tell its sequence what has come; it stays in the table."""
        if self._untold[rank]:
            sequence.go_on(int(self._untold[rank]))
            self._untold[rank] = 0

    def _make_room(self, tokens: int) -> bool:
        """Pack the periods of those that are in; False if there is no room for so many more."""
        inside = np.flatnonzero(self._at != _OUT)
        kept = int(self._length[inside].sum())
        if kept + tokens > MOST_TOKENS:
            return False
        room = np.zeros(min(MOST_TOKENS, max(1024, 2 * (kept + tokens))), np.uint32)
        begins = np.cumsum(self._length[inside]) - self._length[inside]
        for rank, begin in zip(inside.tolist(), begins.tolist(), strict=True):
            at, length = self._at[rank], self._length[rank]
            room[begin : begin + length] = self._periods[at : at + length]
        self._at[inside] = begins
        self._periods, self._used = room, kept
        return True

    def _grow(self, ranks: int) -> None:
        more = ranks - len(self._at)
        if more > 0:
            more = max(more, len(self._at))
            self._at = np.append(self._at, np.full(more, _OUT, np.int64))
            zeros = np.zeros(more, np.int64)
            self._length, self._place = np.append(self._length, zeros), np.append(self._place, zeros)
            self._next, self._untold = np.append(self._next, zeros), np.append(self._untold, zeros)
            self._since = np.append(self._since, zeros)
