"""What ranks lose, against each other: does one stand out, or may it be chance, or work that goes from rank to rank?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.detect.lately import LostLately
from whichrank.model.iterations import Floats, Window
from whichrank.model.picture import Bools

STEADY: Final = 0.75
"""Share of the iterations since it began in which a steady slowdown shows."""
STANDS_OUT: Final = 3.0
"""Times what any other rank loses that one which comes and goes must lose, or one of a ring."""
FEW_ALIKE: Final = 4
"""Of so many ranks one may be apart from the others, with all that are like it."""
CHANCE: Final = 1e-6
"""How likely its bouts may be, if it had them as the other ranks have."""
CHANCE_AT_START: Final = 2e-3
"""The same of a rank that is slow from the beginning, if work that is longer for one rank at a time moves by chance: of
two peers it takes nine iterations to say so."""
LEAST_TURNS: Final = 2
"""Times that a peer must have been too long instead, for its turns to say how likely such a run is: one may be a fault
that is over."""
LEAST_BEFORE: Final = 3
"""Iterations in which nobody lost as much, before a rank began to: so work did not move then."""


@dataclass(frozen=True)
class Before:
    """What ranks lost before a window."""

    window: Window
    lately: LostLately

    def joined(self, lost_s: Floats, index: int) -> tuple[Floats, int, int]:
        """What this rank and those in its position lost before and in the window, (P, k + n); its place there; k."""
        window = self.window
        same = np.flatnonzero(window.position == window.position[index])
        before_s = self.lately.before(window.ranks[same], int(window.iteration[0]))
        every: Floats = np.concatenate((before_s.astype(np.float64), lost_s[same]), axis=1)
        return every, int(np.searchsorted(same, index)), before_s.shape[1]


class Losses:
    """What all ranks lose, from each column of a window to its end.

    Args:
        lost_s: By rank and iteration.
        is_bout: The same: it is much too long.
        chance: How likely it may be that one stands out.
        before: What peers lost before, if these can have each other's work.
    """

    def __init__(
        self, lost_s: Floats, is_bout: Bools, chance: float = CHANCE, before: Before | None = None
    ) -> None:  # fmt: skip
        self._lost_s, self._log_chance, self._before = lost_s, math.log(chance), before
        self._left = np.arange(lost_s.shape[1], 0, -1)
        self._mean_s = np.cumsum(lost_s[:, ::-1], axis=1)[:, ::-1] / self._left
        self._bouts = np.cumsum(is_bout[:, ::-1], axis=1)[:, ::-1]
        self._all_bouts = self._bouts.sum(axis=0)
        self._most_s = -np.partition(-self._mean_s, min(1, len(lost_s) - 1), axis=0)[:2]

    def stands_out(self, index: int, onset: int) -> bool:
        """Does no other rank lose nearly as much since then, and is it no chance? Else work moves from rank to rank."""
        mine_s, most_s = self._mean_s[index, onset], self._most_s[:, onset]
        others_s = most_s[-1] if mine_s >= most_s[0] else most_s[0]
        if len(self._mean_s) < 2 or mine_s < STANDS_OUT * others_s:
            return False
        count, bouts = int(self._left[onset]), float(self._bouts[index, onset])
        usual = (float(self._all_bouts[onset]) - bouts + 1) / ((len(self._mean_s) - 1) * count + 2)
        return _log_chance(bouts / count, usual, count) <= self._log_chance

    def is_far(self, index: int, onset: int, excess_s: float) -> bool:
        """Is it far from what the others lose since then, in the mean or in each iteration, or longer too often?"""
        return self.stands_out(index, onset) or self.is_apart(index, onset) or self.is_oftener(index, excess_s)

    def is_oftener(self, index: int, excess_s: float) -> bool:
        """Has it been longer oftener than chance allows, if each of its peers could have been the longer one?

        Since it began every iteration counts that is remembered: a small excess that is there each time is no noise.
        Of two ranks one has it 20 times in a row once in a million, of eight it takes seven times.
        """
        if self._before is None:
            return False
        lost_s, at, _ = self._before.joined(self._lost_s, index)
        is_long = lost_s >= excess_s / 2
        since = began_at(np.where(is_long[at], 1.0, 0.0) - STEADY)
        is_long = is_long[:, since:]
        count = is_long.shape[1]
        if not count:
            return False
        return _log_chance(float(is_long[at].mean()), float(is_long.mean()), count) <= self._log_chance

    def moves(self, index: int, onset: int, excess_s: float) -> bool:
        """May the excess of this rank be work that goes from rank to rank, as long sequences do?

        Where a peer has lost as much again and again while this one was as usual, all since then may be chance. Where
        none has, but nothing was quiet before, each of the peers could have been the first.
        """
        if self._before is None:
            return False
        lost_s, at, more = self._before.joined(self._lost_s, index)
        is_long, mine_s, onset = lost_s >= excess_s / 2, lost_s[at], onset + more
        some: Bools = np.asarray(is_long.any(axis=0))
        mine: Bools = mine_s >= excess_s / 2
        onset -= int(np.argmin(np.append(mine[:onset][::-1], False)))  # it may have begun before what is looked at
        since = mine[onset:]
        turns = is_long & (mine_s < excess_s / 4)
        bouts = (turns[:, 1:] & ~turns[:, :-1]).sum(axis=1) + turns[:, 0]
        peer = int(bouts.argmax())
        if bouts[peer] >= LEAST_TURNS:
            usual = (turns[peer].sum() + 1) / (len(some) - int(some.argmax()) + 2)
            limit = self._log_chance
        elif (~some[:onset]).sum() >= max(LEAST_BEFORE, STEADY * onset):
            return False
        else:
            alike = ((is_long & mine).sum(axis=1) >= STEADY * mine.sum()).sum()
            usual, limit = alike / len(lost_s), math.log(CHANCE_AT_START)
        return _log_chance(float(since.mean()), usual, len(since)) > limit

    def is_apart(self, index: int, onset: int) -> bool:
        """Has it lost more in each iteration since then than any other in any of them, but for few that are like it?

        Its own spread may be large then. Noise would put these of all losses on top once in so many ways to choose.
        """
        since_s = self._lost_s[:, onset:]
        ranks, count = since_s.shape
        least_s = float(since_s[index].min())
        is_alike = since_s.min(axis=1) >= least_s / 2
        alike, others_s = int(is_alike.sum()), since_s[~is_alike]
        if not alike <= ranks // FEW_ALIKE or least_s <= others_s.max():
            return False
        log_chance = _log_paths(ranks, alike) - _log_paths(ranks * count, alike * count)
        means_s = others_s.mean(axis=1)
        return log_chance <= self._log_chance and float(since_s[index].mean()) >= STANDS_OUT * float(means_s.max())


def began_at(over: Floats) -> int:
    """The place from which something lasts: where the sum of all that came before is least.

    Args:
        over: By how much each iteration is above the middle of with and without it, (n,).
    """
    return int(np.argmin(np.concatenate(([0.0], np.cumsum(over)))))


def _log_paths(many: int, few: int) -> float:
    """The logarithm of the number of ways to choose a few of many."""
    return math.lgamma(many + 1) - math.lgamma(few + 1) - math.lgamma(many - few + 1)


def _log_chance(share: float, usual: float, count: int) -> float:
    """The logarithm of the chance of such a share of `count` or more where `usual` is expected; Chernoff's bound."""
    if share <= usual:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - usual)) if share < 1 else 0.0
    return -count * (share * math.log(share / usual) + rest)
