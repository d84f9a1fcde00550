"""The methods that are compared: each takes a series and says where its level has changed, and when it knew.

All but PELT are online: a report at a value rests on that value and those before it. Units are taken out by the first
values of a series (median and spread), to the advantage of the methods of others: their priors and thresholds fit.

Decided where the paper leaves it open (Greyhound section 7.2):

- *sliding window*: the median of the latest 10 values against that of all values since the latest report;
- *BOCD*: a report if run lengths of at most 3 have more than 0.9 of the likelihood, and none within 10 values of the
  last (`bench/methods/bocd.py`);
- *BOCD+V*: the same, with the means of 10 values before and 10 after, which must differ by a tenth;
- *CUSUM* (not in the paper): both sides, slack of half a tenth of the level, threshold of 8 standard deviations, begun
  anew after a report;
- *PELT* (not in the paper, offline): least squares, penalty 3 sigma^2 log n, changes of a tenth or more.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.change_points import LEAST_CHANGE, LEAST_SPREAD, WARM_UP, ChangePoints
from whichrank.errors import UsageError
from whichrank.model.spread import SIGMA_PER_MAD
from whichrank.testbed.bench.methods.bocd import YOUNG, Bocd

Floats = NDArray[np.float64]
OURS: Final = "ours"
OFFLINE: Final = "pelt"
WINDOW: Final = 10
"""Values of the sliding window, and on each side of a change that BOCD+V verifies."""
CUSUM_THRESHOLD: Final = 8.0
"""Standard deviations. With the usual 5, one quiet series in three has a report."""
_BOCD_SIGMA: Final = 0.03
"""Standard deviation of the values that `Bocd` is given, as a share of their level: it finds more than with 0.01."""


class Report(NamedTuple):
    """A change that a method reports.

    Attributes:
        place: The number of the first value of the new level, as far as the method says.
        seen: The number of the value with which it was reported.
    """

    place: int
    seen: int


def all_ours(series: list[Floats]) -> list[list[Report]]:
    """Ours: all series in one bank, as a job's ranks would be; they may have different lengths."""
    bank, reports = ChangePoints(len(series)), [list[Report]() for _ in series]
    lengths = np.array([len(values) for values in series])
    for number in range(int(lengths.max(initial=0))):
        of = np.flatnonzero(lengths > number)
        changes = bank.feed(np.array([series[i][number] for i in of]), of)
        for i, at in zip(changes.series.tolist(), changes.at.tolist(), strict=True):
            reports[i].append(Report(at, number))
    return reports


def sliding_window(values: Floats) -> list[Report]:
    """See the module."""
    reports, since = list[Report](), 0
    for number in range(len(values)):
        if number - since < 2 * WINDOW:
            continue
        window, before = values[number - WINDOW + 1 : number + 1], values[since : number - WINDOW + 1]
        if _differ(float(np.median(before)), float(np.median(window))):
            since = number - WINDOW + 1
            reports.append(Report(since, number))
    return reports


def bocd(values: Floats) -> list[Report]:
    """Plain BOCD; see the module."""
    usual, spread = _usual(values)
    detector, reports = Bocd(), list[Report]()
    for number, value in enumerate((values - usual) / spread):
        if detector.change(1 + _BOCD_SIGMA * float(value)) and (not reports or number - reports[-1].seen >= WINDOW):
            reports.append(Report(number - YOUNG + 1, number))
    return reports


def verified_bocd(values: Floats) -> list[Report]:
    """BOCD+V; see the module. It waits for the values after a change."""
    reports = []
    for place, _ in bocd(values):
        before, after = values[max(0, place - WINDOW) : place], values[place : place + WINDOW]
        if len(after) == WINDOW and len(before) and _differ(float(before.mean()), float(after.mean())):
            reports.append(Report(place, place + WINDOW - 1))
    return reports


def cusum(values: Floats) -> list[Report]:
    """See the module."""
    reports, begin = list[Report](), 0
    while begin + WARM_UP < len(values):
        usual, spread = _usual(values[begin:])
        slack = max(0.5, LEAST_CHANGE / 2 * abs(usual) / spread)
        sums, since = [0.0, 0.0], [begin, begin]
        for number in range(begin + WARM_UP, len(values)):
            off = float(values[number] - usual) / spread
            for side, one in enumerate((off, -off)):
                sums[side] = max(0.0, sums[side] + one - slack)
                since[side] = number + 1 if sums[side] == 0 else since[side]
            if max(sums) > CUSUM_THRESHOLD:
                reports.append(Report(max(since[int(np.argmax(sums))], begin + WARM_UP), number))
                break
        else:
            break
        begin = number
    return reports


def require_ruptures() -> Any:
    """The class of `ruptures` that PELT is; it takes half a second to import, so it is only here.

    Raises:
        UsageError: It is not installed.
    """
    try:
        from ruptures import KernelCPD
    except ImportError as error:
        raise UsageError("PELT needs ruptures, which is not installed", mend="pip install ruptures") from error
    return KernelCPD


def pelt(values: Floats) -> list[Report]:
    """See the module.

    Raises:
        UsageError: `ruptures` is not installed.
    """
    kernel_cpd = require_ruptures()
    steps = np.diff(values)
    sigma = SIGMA_PER_MAD * float(np.median(np.abs(steps - np.median(steps)))) / np.sqrt(2)
    sigma = max(sigma, LEAST_SPREAD * abs(float(np.median(values))))
    # With a linear kernel it is PELT under least squares, in C.
    cuts = kernel_cpd(kernel="linear", min_size=3).fit(values).predict(pen=3 * sigma**2 * np.log(len(values)))
    edges = [0, *cuts]
    medians = [float(np.median(values[a:b])) for a, b in pairwise(edges)]
    return [Report(at, at) for at, levels in zip(edges[1:], pairwise(medians), strict=False) if _differ(*levels)]


METHODS: Final[dict[str, Callable[[Floats], list[Report]]]] = {
    "sliding-window": sliding_window,
    "bocd": bocd,
    "bocd+v": verified_bocd,
    "cusum": cusum,
    OFFLINE: pelt,
}
"""Those of others, by name; each takes one series."""
NAMES: Final = (*METHODS, OURS)


def _usual(values: Floats) -> tuple[float, float]:
    """Median and spread of the first values; the spread is never 0."""
    first = values[:WARM_UP]
    usual = float(np.median(first))
    spread = max(SIGMA_PER_MAD * float(np.median(np.abs(first - usual))), LEAST_SPREAD * abs(usual))
    return usual, spread or 1.0


def _differ(before: float, after: float) -> bool:
    return abs(after - before) >= LEAST_CHANGE * abs(before)
