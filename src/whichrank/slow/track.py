"""How long iterations of a job take, and when that has changed: the first phase of Greyhound (section 4.2), live.

All ranks of a job wait for each other in each iteration, so one series stands for it: the median over ranks. Short
iterations are put together, so that a value comes twice a second and the cost does not go with their number.

Only like is compared with like: iterations with other operations, or with more or less to compute, are left out. Where
eight values in a row are of one other sort, the job does something else now, and what it took before says nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.detect.change_points import LEAST_CHANGE, WARM_UP, ChangePoints
from whichrank.detect.level_shift import KEPT
from whichrank.model.iterations import Floats, Window
from whichrank.model.work import MORE

SAMPLE_S: Final = 0.5
"""Seconds of iterations in one value, about; one iteration where it takes longer."""
LATEST: Final = 4
"""Iterations of which the shortest says how many of them make a value: a single long one is no value by itself."""
MOST_CHANGES: Final = 64
"""That are remembered."""


@dataclass(frozen=True)
class Change:
    """Iterations take longer, or less long, than before.

    Attributes:
        iteration: The first one.
        at_s: When it began, on the clock of the analyzer.
        before_s: An iteration took.
        after_s: It takes.
    """

    iteration: int
    at_s: float
    before_s: float
    after_s: float

    @property
    def is_onset(self) -> bool:
        """Whether they take longer."""
        return self.after_s > self.before_s


@dataclass(frozen=True)
class _Sort:
    """What is compared: the same operations, and as much to compute."""

    pattern: int
    elements: float
    length: float

    def is_like(self, other: _Sort) -> bool:
        return self.pattern == other.pattern and all(
            max(one, two) < MORE * min(one, two) or one == two
            for one, two in ((self.elements, other.elements), (self.length, other.length))
        )


class Track:
    """Of one job.

    Attributes:
        changes: The latest ones, in order.
        longer: Since when iterations take longer than they have, by a tenth or more; None where they do not.
    """

    def __init__(self) -> None:
        self.changes: deque[Change] = deque(maxlen=MOST_CHANGES)
        self._fed = -1  # the latest iteration that was looked at
        self._begin(None)

    def _begin(self, sort: _Sort | None) -> None:
        """Nothing is known of what iterations of this sort take."""
        self._bank = ChangePoints(1)
        self._sort = sort
        self._since = 0  # the number of the first value of the present level
        self._least_s = np.inf  # the least level that was left
        self.longer: Change | None = None
        self._waiting: list[tuple[int, float, float]] = []  # iterations of the next value: number, beginning, seconds
        self._latest_s: deque[float] = deque(maxlen=LATEST)
        self._of_value = np.zeros((KEPT, 2))  # by number of a value modulo KEPT: iteration, beginning
        self._others: list[_Sort] = []  # of another sort, in a row

    def relieved_s(self, since_s: float) -> float | None:
        """When iterations became quicker, on the clock of the analyzer; None if they have not since then."""
        latest = self.changes[-1] if self.changes else None
        return latest.at_s if latest and not latest.is_onset and latest.at_s >= since_s else None

    def feed(self, window: Window, offset_s: float) -> list[Change]:
        """Take the iterations that are new.

        Args:
            window: The latest ones.
            offset_s: From the clock of the first rank of the window to that of the analyzer.

        Returns:
            What has changed, as is known now.
        """
        at = np.flatnonzero(window.iteration > self._fed)
        if not len(at):
            return []
        self._fed = int(window.iteration[-1])
        total_s = np.median(window.total_s[:, at], axis=0)
        began_s = window.end_ns[0, at] / 1e9 - window.total_s[0, at] + offset_s
        found = []
        for column, seconds, begin_s in zip(at.tolist(), total_s.tolist(), began_s.tolist(), strict=True):
            if not self._is_of_sort(_sort_of(window, column)):
                continue
            self._waiting.append((int(window.iteration[column]), begin_s, seconds))
            self._latest_s.append(seconds)
            if len(self._waiting) >= SAMPLE_S / max(min(self._latest_s), 1e-9) - 0.5:  # the nearest whole number
                found += self._take()
        self.changes.extend(found)
        return found

    def _is_of_sort(self, sort: _Sort) -> bool:
        """Whether an iteration is compared; where others of one sort follow each other, these are from now on."""
        if self._sort is None:
            self._sort = sort
        if sort.is_like(self._sort):
            self._others.clear()
            return True
        if self._others and not sort.is_like(self._others[-1]):
            self._others.clear()
        self._others.append(sort)
        if len(self._others) < WARM_UP:
            return False
        self._begin(sort)
        return True

    def _take(self) -> list[Change]:
        """Feed a value."""
        number = int(self._bank.seen[0])
        first, begin_s, _ = self._waiting[0]
        self._of_value[number % KEPT] = first, begin_s
        value = float(np.median([seconds for _, _, seconds in self._waiting]))
        self._waiting.clear()
        changes = self._bank.feed(np.array([value]))
        found = []
        for at, before_s, after_s in zip(
            changes.at.tolist(), changes.before.tolist(), changes.after.tolist(), strict=True
        ):
            iteration, at_s = self._of_value[max(at, number - KEPT + 1) % KEPT].tolist()
            found.append(Change(int(iteration), at_s, before_s, after_s))
            if at - self._since >= WARM_UP:  # less may be a lull
                self._least_s = min(self._least_s, before_s)
            self._since = at
            self._note(found[-1])
        return found

    def _note(self, change: Change) -> None:
        """Whether iterations take longer than they have, since when."""
        if change.after_s < (1 + LEAST_CHANGE) * self._least_s:
            self.longer = None
            return
        since = self.longer or change
        self.longer = Change(since.iteration, since.at_s, self._least_s, change.after_s)


def _sort_of(window: Window, column: int) -> _Sort:
    if window.given is None:
        return _Sort(window.pattern, 0.0, 0.0)
    given = window.given[:, column]
    return _Sort(window.pattern, _most(given.elements), _most(given.lengths))


def _most(values: Floats) -> float:
    return float(values.max(initial=0.0))
