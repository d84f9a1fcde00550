"""Change points of many series, as their values come: where has the level of a series changed by a tenth or more?

Two steps, as in Greyhound section 4.2. `run_lengths` says with which value the present level has most likely begun. A
series whose level likely began after the one that was reported last is a *candidate*. A candidate is verified against
its latest values, because the first step alone takes every jitter for a change:

- the medians before and after differ by a tenth or more (`LEAST_CHANGE`). Medians, since one long pause moves a mean;
- the difference is more than the noise of the series (`level_shift`), so periodic checkpoints and heavy tails are no
  changes.

The level before is the one that was *reported* last. So small steps in a row add up, which the paper names as the case
that it misses, and a slow drift does too. Where it is not far enough, the level of a moment ago counts: up by 8 % and
then down by 16 % is a change. Relief is a change like onset.

Nothing has a unit: the first values of a series say what is usual for it.

Example: iterations take 1.00 s, from number 100 on 1.25 s. `feed` returns `Changes` with `at` 100, `before` 1.00 and
`after` 1.25 when it is given number 102.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.detect.level_shift import KEPT, LEAST_VALUES, is_shift, medians
from whichrank.detect.run_lengths import RUNS, RunLengths
from whichrank.model.iterations import Bools, Floats, Ints
from whichrank.model.spread import SIGMA_PER_MAD

LEAST_CHANGE: Final = 0.1
"""Share by which a level must change to be reported (Greyhound section 4.2)."""
CANDIDATE_LIKELIHOOD: Final = 0.9
"""Likelihood that the level began after the known run, from which a series is a candidate (Greyhound section 4.2)."""
WARM_UP: Final = 8
"""First values, which say what is usual; nothing is reported before. Their median stands a slow start of three."""
LEAST_KNOWN: Final = 8
"""Values of the known run from which its median is compared too: of fewer it follows the noise."""
DRIFT_CHECK_EVERY: Final = 8
"""Values between two checks of a series that is no candidate: a drift is slow, and a check costs a sort."""
DRIFT_WINDOW: Final = 16
"""Latest values of which a drift is seen."""
DRIFT_SPREADS: Final = 1.75
"""Spreads by which their median must differ from the level: five standard errors of medians of 16 and of 64 values,
since a drift is looked for all the time."""
LEAST_SPREAD: Final = 0.01
"""Smallest spread that is believed, as a share of the level: eight equal values do not mean that there is no noise."""
BLOCK: Final = 2048
"""Series that are handled at once: their columns fit into the cache of a core."""


@dataclass(frozen=True)
class Changes:
    """Levels that have changed.

    Attributes:
        series: Which series, (n,).
        at: The number of the first value of the new level, from 0, (n,).
        before: The level before, in the unit of the values, (n,).
        after: The new level, in the unit of the values, (n,).
    """

    series: Ints
    at: Ints
    before: Floats
    after: Floats

    def __len__(self) -> int:
        return len(self.series)


class ChangePoints:
    """The change points of many series.

    A value that is not finite is left out, and has no number. Memory is bounded: see `nbytes`.

    Args:
        series: How many.
        least_change: Share by which a level must change to be reported.
        runs: Runs of each series, see `RunLengths`.

    Attributes:
        seen: Values of each series so far, (series,).
        level: The level of each series that was reported last, NaN during the warm-up, (series,).
    """

    def __init__(self, series: int, *, least_change: float = LEAST_CHANGE, runs: int = RUNS) -> None:
        self._least_change = least_change
        self._runs = RunLengths(series, runs)
        self._values = np.zeros((KEPT, series))
        self.seen = np.zeros(series, np.int64)
        self.level = np.full(series, np.nan)
        self._began = np.zeros(series, np.int64)  # the number of the first value of `level`
        self._before = np.full(series, np.nan)  # the level before `level`
        self._before_began = np.zeros(series, np.int64)
        self._known = np.zeros(series, np.int64)  # the first value of the latest run that was checked
        self._usual, self._spread = np.zeros(series), np.zeros(series)  # of the first values; 0: not known yet

    @property
    def nbytes(self) -> int:
        """Memory of all series: 704 bytes for each, with 8 runs."""
        columns = (column for column in vars(self).values() if isinstance(column, np.ndarray))
        return self._runs.nbytes + sum(column.nbytes for column in columns)

    def feed(self, values: Floats, of: Ints | None = None) -> Changes:
        """Take one value of each of some series.

        Args:
            values: (n,).
            of: Which series, none twice, (n,); None: all of them.

        Returns:
            The levels that have changed, as is known now.
        """
        of = np.arange(len(self.seen)) if of is None else np.asarray(of, np.int64)
        is_finite = np.isfinite(values)
        if not is_finite.all():
            of, values = of[is_finite], values[is_finite]
        blocks = range(0, len(of), BLOCK)
        return _joined([self._feed(of[at : at + BLOCK], values[at : at + BLOCK]) for at in blocks])

    def _feed(self, of: Ints, values: Floats) -> Changes:
        number = self.seen[of]
        self._values[number % KEPT, of] = values
        self.seen[of] = number + 1
        is_last_of_warm_up = number == WARM_UP - 1
        if is_last_of_warm_up.any():
            self._begin(of[is_last_of_warm_up])
        is_warm = number >= WARM_UP
        if not is_warm.all():
            of, number, values = of[is_warm], number[is_warm], values[is_warm]
        if not len(of):
            return _joined([])
        self._take(of, number, values)
        return self._check(of)

    def _begin(self, of: Ints) -> None:
        """Learn from the first values of these series what is usual, and take them."""
        first = self._values[:WARM_UP, of]
        usual = np.median(first, axis=0)
        spread = SIGMA_PER_MAD * np.median(np.abs(first - usual), axis=0)
        least = LEAST_SPREAD * np.where(usual == 0, np.abs(first).max(axis=0), np.abs(usual))
        self._usual[of], self._spread[of], self.level[of] = usual, np.maximum(spread, least), usual
        for number, values in enumerate(first):
            self._take(of, np.full(len(of), number), values)

    def _take(self, of: Ints, number: Ints, values: Floats) -> None:
        """Let the runs of these series take a value each, in units of their spread."""
        off, spread = values - self._usual[of], self._spread[of]
        if not spread.all():  # only zeros so far: the first other value gives the unit
            spread = self._spread[of] = np.where(spread == 0, LEAST_SPREAD * np.abs(off), spread)
            spread = np.where(spread == 0, 1.0, spread)
        self._runs.feed(_as_slice(of), number, off / spread)

    def _check(self, of: Ints) -> Changes:
        """Verify the candidates among these series, and now and then the other ones, for a drift."""
        seen = self.seen[of]
        likelihood, began = self._runs.begun_after(_as_slice(of), self._known[of])
        is_candidate = (likelihood >= CANDIDATE_LIKELIHOOD) & (seen - began >= LEAST_VALUES)
        due = np.flatnonzero(((seen + of) % DRIFT_CHECK_EVERY == 0) & ~is_candidate)  # not all at the same value
        due_of = of[due]
        drifts = due[self._may_have_drifted(due_of)]
        began[drifts] = seen[drifts] - DRIFT_WINDOW
        at = np.concatenate((np.flatnonzero(is_candidate), drifts))
        changes = self._verify(of[at], began[at], is_candidate[at]) if len(at) else _joined([])
        self._refine(due_of[~np.isin(due_of, changes.series)])
        return changes

    def _may_have_drifted(self, of: Ints) -> Bools:
        """Whether the latest values of these series, of one run, are off their level, (n,)."""
        values, number = self._latest(of, DRIFT_WINDOW)
        is_one_run = number[-1] >= np.maximum(self._known[of], self._began[of] + 1)
        is_off: Bools = self._differs(self.level[of], np.median(values, axis=0))
        return np.asarray(is_one_run & is_off)

    def _verify(self, of: Ints, began: Ints, is_candidate: Bools) -> Changes:
        """Compare the latest run of each of these series with the level before it.

        That is the level that was reported last or, for a candidate, that of the known run, if one of them differs by
        enough. The run of a candidate that differs from neither becomes the known one.

        Args:
            of: Which series, (n,).
            began: The number of the first value of the latest run, (n,).
            is_candidate: Else these are its latest values, and it may have drifted, (n,).
        """
        values, number = self._latest(of)
        level = self.level[of]
        is_new = number >= began
        is_known = (number >= self._known[of]) & ~is_new
        has_known = is_known.sum(axis=0) >= LEAST_KNOWN
        after = medians(values, is_new)
        known_level = np.where(has_known, medians(values, is_known), level)
        before = np.where(is_candidate & ~self._differs(level, after), known_level, level)
        differs = self._differs(before, after)
        goes_on = ~differs & is_candidate
        self._known[of[goes_on]] = began[goes_on]
        at = np.flatnonzero(differs)
        if not len(at):
            return _joined([])
        of, began, level, known_level = of[at], began[at], level[at], known_level[at]
        values, number, is_new, is_known = values[:, at], number[:, at], is_new[:, at], is_known[:, at]
        of_what = [number < 0, is_new, is_known, number >= self._began[of], number >= self._before_began[of]]
        its_level = np.select(of_what, [np.nan, after[at], known_level, level, self._before[of]], np.nan)
        before, after = before[at], after[at]
        least, spreads = self._least_change * np.abs(before), np.where(is_candidate[at], 1.0, DRIFT_SPREADS)
        is_real = is_shift(values, its_level, is_new, before, after, least, spreads)
        return self._report(of[is_real], began[is_real], before[is_real], after[is_real])

    def _differs(self, before: Floats, after: Floats) -> Bools:
        change = np.abs(after - before)
        return (change >= self._least_change * np.abs(before)) & (change > 0)

    def _report(self, of: Ints, began: Ints, before: Floats, after: Floats) -> Changes:
        changes = Changes(of, began, before, after)
        self._before[of], self._before_began[of] = self.level[of], self._began[of]
        self.level[of] = after
        self._began[of] = self._known[of] = began
        return changes

    def _refine(self, of: Ints) -> None:
        """A level is known better by its first `KEPT` values than by those with which it was found."""
        of = of[self.seen[of] - self._began[of] <= KEPT]
        if len(of):
            values, number = self._latest(of)
            self.level[of] = medians(values, number >= self._began[of])

    def _latest(self, of: Ints, count: int = KEPT) -> tuple[Floats, Ints]:
        """The latest values of these series and their numbers, (count, n) each; negative numbers are of no value."""
        number = self.seen[of] - 1 - np.arange(count)[:, None]
        return self._values[number % KEPT, of], number


def _as_slice(of: Ints) -> Ints | slice:
    """The same series as a slice, if they follow each other: columns need no copy then."""
    first, last = int(of[0]), int(of[-1])
    return slice(first, last + 1) if last - first + 1 == len(of) and (np.diff(of) == 1).all() else of


def _joined(parts: list[Changes]) -> Changes:
    parts = [part for part in parts if len(part)]
    if not parts:
        return Changes(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    series, at = (np.concatenate([getattr(part, name) for part in parts]) for name in ("series", "at"))
    before, after = (np.concatenate([getattr(part, name) for part in parts]) for name in ("before", "after"))
    return Changes(series, at, before, after)
