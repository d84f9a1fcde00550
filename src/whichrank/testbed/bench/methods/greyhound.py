"""Greyhound-detect, its part that needs no pause of the job (paper, sections 4.2 and 4.3, profiling).

The iteration is the first lag at which the calls of a rank repeat (autocorrelation of 0.95), its time goes through
change-point detection, and a change counts if the means before and after differ by a tenth. Which group, rank or link
it is, profiling and validation would say, of which the second stops the job: neither is here, so it names nobody.

As in the code, calls of less than 1,024 elements are left out, and change points are ten iterations apart. That runs of
all-gathers or reduce-scatters are one call is left out, to its advantage: of FSDP2 only the loop over layers would be
left, which has a period of its own.

Decided: a call is reported by its kind, data type and size, since many jobs issue all-reduces only, but for the size of
    an uneven all-to-all; the latest 512 calls, or the latest half, are looked at for a period, of which there must be
    three; the correlation at a lag is that of the calls which overlap.
"""

from __future__ import annotations

import numpy as np

from whichrank.testbed.bench.methods.bocd import Bocd
from whichrank.testbed.bench.methods.method import Limits, Said
from whichrank.testbed.bench.methods.telemetry import Telemetry

CORRELATION = 0.95
CHANGE = 0.1
APART = 10
LEAST_COUNT = 1024
"""Elements of a call that is looked at."""
LENGTH = 512
"""Calls that are looked at for a period: the latest, and of few half, since a job begins otherwise than it goes on."""
_POLL_S = 1.0
_AFTER = APART
_LEAST = 64


class Greyhound:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._begun_s = np.inf
        self._next_s = 0.0
        self._lag = 0
        self._times: list[float] = []
        self._last_s = 0.0
        self._bocd = Bocd()
        self._changed_at = -APART
        self._pending: list[int] = []

    def examine(self, seen: Telemetry) -> list[Said]:
        """See `method.Method`."""
        self._begun_s = min(self._begun_s, seen.now_s)
        if seen.now_s < self._next_s:
            return []
        self._next_s = seen.now_s + _POLL_S
        rows = seen.rounds(self._begun_s)
        rows = rows[(rows["rank"] == 0) & (rows["count"] >= LEAST_COUNT)]
        rows = rows[np.argsort(rows["issue_s"], kind="stable")]
        if not self._lag:
            self._lag = period(latest(rows["signature"])) if len(rows) >= _LEAST else 0
            if not self._lag:
                return []
        at_s = rows["issue_s"][:: self._lag]
        fresh = np.diff(at_s)[at_s[1:] > self._last_s]
        self._last_s = float(at_s[-1]) if len(at_s) else self._last_s
        for took_s in fresh:
            self._take(float(took_s))
        return [Said("slow")] if self._verified() else []

    def _take(self, took_s: float) -> None:
        self._times.append(took_s)
        if self._bocd.change(took_s / self._times[0]):
            at = len(self._times) - 1
            if at - self._changed_at >= APART:
                self._changed_at = at
                self._pending.append(at)

    def _verified(self) -> bool:
        """A change after which iterations take a tenth longer in the mean."""
        for at in list(self._pending):
            if len(self._times) - at < _AFTER:
                continue
            self._pending.remove(at)
            before, after = np.mean(self._times[max(0, at - APART) : at]), np.mean(self._times[at:])
            if after - before >= CHANGE * before:
                return True
        return False


def latest(calls: np.ndarray) -> np.ndarray:
    """Those that are looked at for a period, of what a rank has called, in order."""
    return calls[-min(LENGTH, max(len(calls) // 2, 1)) :]


def period(calls: np.ndarray) -> int:
    """The first lag at which calls repeat, 0 if there is none.

    Args:
        calls: What a rank has called, in order.
    """
    values = np.unique(calls, return_inverse=True)[1].astype(np.float64)
    x = values - values.mean()
    total = float((x * x).sum())
    if not total:
        return 1
    for lag in range(1, len(x) // 3 + 1):
        if float((x[:-lag] * x[lag:]).sum()) / total * len(x) / (len(x) - lag) >= CORRELATION:
            return lag
    return 0
