"""What methods report of a series, against what was done to it.

A change is *found* if a report comes with one of its first `WITHIN` values, or from its begin on if it is gradual. For
PELT, which is offline and says a place only, it may be 5 values early. A report that belongs to no change is *false*.

A fault of the lab varies while it lasts: flows of others compete as they like, and an iteration takes 0.7 s first and
1.2 s a while later. So a report between onset and relief is none of a change that was made, and is not false either, if
hindsight shows a change there: the medians of the values before and after differ by a tenth.

- *accuracy*: series in which all changes are found and no report is false, of all series;
- *false-positive rate*: series without a change that have a report, of all series without a change;
- *false-negative rate*: series in which a change is not found, of all series with a change;
- *delay*: values of the new level that a method has seen when it reports, of changes that are sharp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np

from whichrank.detect.change_points import LEAST_CHANGE
from whichrank.testbed.bench.fail_slow.methods import OFFLINE, Report
from whichrank.testbed.bench.fail_slow.series import Series

WITHIN: Final = 25
"""Values. BOCD+V and the sliding window need 10 of the new level; a fail-slow of the paper lasts for minutes."""
EARLY: Final = 5
"""Values, for a method that looks back over the whole series."""


HINDSIGHT: Final = 10
"""Values on either side of the place of a report within a fault, of which the medians are compared."""
LEAST_HINDSIGHT: Final = 3
"""And so many at least, on each side."""


@dataclass(frozen=True)
class Found:
    """What a method has made of one series.

    Attributes:
        missed: Changes that were not found.
        false: Reports that belong to no change.
        delays: Of the changes that are sharp and were found.
        within: Reports of what hindsight shows to have changed while a fault lasted.
    """

    has_changes: bool
    missed: int
    false: int
    delays: tuple[int, ...]
    within: int = 0

    @property
    def is_right(self) -> bool:
        """All of it."""
        return not self.missed and not self.false


@dataclass(frozen=True)
class Score:
    """A row of a table.

    Attributes:
        right: Series of which all is right.
        strictly_right: The same, were all reports false that belong to no change that was made.
        series: All of them.
        false_positive: Series without a change that have a report.
        healthy: Series without a change.
        false_negative: Series in which a change is not found.
        changing: Series with a change.
        delay: Median, None if nothing was found.
    """

    right: int
    strictly_right: int
    series: int
    false_positive: int
    healthy: int
    false_negative: int
    changing: int
    delay: float | None


def found_in(series: Series, reports: Sequence[Report], method: str) -> Found:
    """Hold the reports of a method against the changes of a series."""
    early = EARLY if method == OFFLINE else 0
    begins = series.begins or series.changes
    spans = [(begin - early, change + WITHIN) for begin, change in zip(begins, series.changes, strict=True)]
    seen = np.array([report.seen for report in reports], np.int64)
    delays, missed, belongs = list[int](), 0, np.zeros(len(seen), np.bool_)
    for (first, last), change in zip(spans, series.changes, strict=True):
        inside = (seen >= first) & (seen < last)
        belongs |= inside
        if not inside.any():
            missed += 1
        elif not series.begins:
            delays.append(int(seen[inside][0]) - change + 1)
    within = sum(not known and _varied(series, report) for known, report in zip(belongs, reports, strict=True))
    return Found(bool(series.changes), missed, int((~belongs).sum()) - within, tuple(delays), within)


def _varied(series: Series, report: Report) -> bool:
    """Whether the fault of a series that was recorded was another one from the place of this report on."""
    if not series.run or len(series.changes) != 2:
        return False
    onset, relief = series.changes
    if not onset < report.place <= report.seen < relief:
        return False
    before = series.values[max(onset, report.place - HINDSIGHT) : report.place]
    after = series.values[report.place : min(relief, report.place + HINDSIGHT)]
    if min(len(before), len(after)) < LEAST_HINDSIGHT:
        return False
    return abs(median(after) - median(before)) >= LEAST_CHANGE * median(before)


def score(found: Sequence[Found]) -> Score:
    """Count them."""
    healthy = [one for one in found if not one.has_changes]
    changing = [one for one in found if one.has_changes]
    delays = [delay for one in found for delay in one.delays]
    return Score(
        right=sum(one.is_right for one in found),
        strictly_right=sum(one.is_right and not one.within for one in found),
        series=len(found),
        false_positive=sum(one.false > 0 for one in healthy),
        healthy=len(healthy),
        false_negative=sum(one.missed > 0 for one in changing),
        changing=len(changing),
        delay=float(median(delays)) if delays else None,
    )
