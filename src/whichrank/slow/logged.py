"""When iterations of a job became longer, by a log that says how long each took: change points, and no rank.

Like is compared with like: where the batch size changes, a new series begins. An episode begins when the level rises
and ends when it is back within a tenth of what it was. One or two long iterations (a checkpoint, an evaluation) are no
level (`detect.level_shift`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from whichrank.detect.change_points import LEAST_CHANGE, ChangePoints
from whichrank.model.iterations import Floats
from whichrank.model.logged_iterations import Attempt

MOST_VALUES: Final = 5_000
"""That are looked at one by one; of a longer series medians of several, which takes about as long."""


@dataclass(frozen=True)
class Level:
    """From an iteration on.

    Attributes:
        first: Its first value, as an index into the attempt.
        value: The level, in the unit of the log.
    """

    first: int
    value: float


@dataclass(frozen=True)
class Episode:
    """A time in which iterations took longer.

    Attributes:
        before: The level before.
        levels: The levels in it, the first one that of the onset.
        relief: The level after it; None: it goes on to the end of the log.
    """

    before: float
    levels: tuple[Level, ...]
    relief: Level | None = None

    @property
    def worst(self) -> float:
        """The highest level in it."""
        return max(level.value for level in self.levels)


def episodes_of(attempt: Attempt) -> list[Episode]:
    """When iterations took longer, in order.

    Args:
        attempt: Of one life of the job.
    """
    found = []
    for start, stop in _alike(attempt):
        found += _episodes(_levels(attempt.value[start:stop], start))
    return found


def _alike(attempt: Attempt) -> list[tuple[int, int]]:
    """Begin and end of each run of one batch size."""
    bounds = [0, *(np.flatnonzero(np.diff(attempt.batch)) + 1).tolist(), len(attempt.value)]
    return list(pairwise(bounds))


def _levels(values: Floats, offset: int) -> tuple[float, list[Level]]:
    """The level at the begin, and those that follow."""
    each = -(-len(values) // MOST_VALUES) or 1
    bank, before, levels = ChangePoints(1), np.nan, list[Level]()
    for at in range(0, len(values), each):
        changes = bank.feed(np.array([float(np.median(values[at : at + each]))]))
        for first, old, new in zip(changes.at.tolist(), changes.before.tolist(), changes.after.tolist(), strict=True):
            before = old if np.isnan(before) else before
            levels.append(Level(offset + first * each, new))
    return (float(bank.level[0]) if np.isnan(before) else float(before)), levels


def _episodes(found: tuple[float, list[Level]]) -> list[Episode]:
    usual, levels = found
    episodes: list[Episode] = []
    now: Episode | None = None
    for level in levels:
        is_long = level.value >= (1 + LEAST_CHANGE) * usual
        if now is None and is_long:
            now = Episode(usual, (level,))
        elif now is not None and is_long:
            now = replace(now, levels=(*now.levels, level))
        else:
            if now is not None:
                episodes.append(replace(now, relief=level))
                now = None
            usual = level.value
    return [*episodes, now] if now else episodes
