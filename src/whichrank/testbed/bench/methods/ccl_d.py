"""CCL-D by its own formulas (paper, section 4): counts and rates of sends and receives beside the operations.

The baseline is that of equation 1: the mean of the longest durations of the first 100 rounds, or of those in the first
two windows (two minutes there, whose windows last one) if these are fewer. Until then an administrator's baseline would
hold; nobody gives one here, so nothing is said.

Decided, where the paper leaves it open: the slow threshold is "determined statistically": here it is three standard
deviations of R over the rounds of the baseline. Slowness must recur in two windows; of several communicators with an
anomaly the first one in time is located.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whichrank.testbed.bench.methods.method import Limits, Said
from whichrank.testbed.bench.methods.telemetry import Telemetry, barriers, by_round
from whichrank.testbed.lab.scenarios import Class

DEVIATIONS = 3.0
"""Standard deviations of R in sound rounds, beyond which a round is slow."""
RECUR = 2
ALPHA, BETA = 0.4, 0.6
BASE_ROUNDS = 100
BASE_WINDOWS = 2
"""Rounds and windows from which the baseline is made: whichever are over first."""
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Baseline:
    """What is usual on a communicator.

    Attributes:
        duration_s: Mean of the longest duration in each round (T_base, equation 1).
        threshold: Of R (theta_slow): by how many times the baseline a slow round is longer.
    """

    duration_s: float
    threshold: float

    @classmethod
    def of(cls, longest_s: Sequence[float]) -> Baseline:
        """From the longest duration of each of the first rounds.

        Example: rounds of 10 ms and of 30 ms, as many of each, have a mean of 20 ms and R of -0.5 and 0.5, so the
        threshold is 1.5: a round is slow from 50 ms on.
        """
        mean_s = float(np.mean(longest_s))
        return cls(mean_s, DEVIATIONS * float(np.std(longest_s)) / mean_s)


class CclD:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._is_hung = False
        self._base: dict[int, Baseline] = {}
        self._first_s: dict[int, list[float]] = {}
        self._base_windows: Counter[int] = Counter()
        self._window_s = 0.0
        self._slow_windows: dict[int, int] = {}
        self._least_rate: dict[int, float] = {}
        """By rank in the window."""

    def examine(self, seen: Telemetry) -> list[Said]:
        """See `method.Method`."""
        return [*self._hang(seen), *self._slow(seen)]

    # ---- hang ------------------------------------------------------------------------------------------------------

    def _hang(self, seen: Telemetry) -> list[Said]:
        waiting = seen.waiting()
        oldest = waiting.oldest(self._limits.hang_s)
        if self._is_hung or oldest is None:
            return []
        self._is_hung = True
        comm, counter = oldest
        hanging = waiting.rank[(waiting.comm == comm) & (waiting.counter == counter)]
        ranks, fault_class = _locate_hang(seen, comm, counter, set(hanging.tolist()))
        return [Said("hang", frozenset(ranks), fault_class=fault_class)]

    # ---- slow ------------------------------------------------------------------------------------------------------

    def _slow(self, seen: Telemetry) -> list[Said]:
        if not self._window_s and not len(seen.rounds(-np.inf)):
            return []
        self._window_s = self._window_s or seen.now_s
        self._note_rates(seen)
        if seen.now_s - self._window_s < self._limits.window_s:
            return []
        rows = seen.rounds(self._window_s)
        self._window_s = seen.now_s
        rows = rows[~barriers(rows["kind"], rows["bytes"])]
        said: list[tuple[float, Said]] = []
        for comm in np.unique(rows["comm"]).tolist():
            size = int(seen.picture.comm_size[comm])
            rounds = [r for r in by_round(rows[rows["comm"] == comm]) if len(r) == size > 1]
            if len(rounds) >= _LEAST_ROUNDS:
                said += self._judge_window(comm, rounds)
        self._least_rate.clear()
        return [min(said, key=lambda reported: reported[0])[1]] if said else []

    def _note_rates(self, seen: Telemetry) -> None:
        """The lowest rate of sends or receives: the reciprocal of the changes in a window."""
        rates = seen.store.ranks.rates
        rates = rates[(rates["samples"] > 0) & (rates["send_rate"] > 0) & (rates["recv_rate"] > 0)]
        least = np.minimum(rates["send_rate"], rates["recv_rate"])
        for rank, rate in zip(rates["rank"].tolist(), least.tolist(), strict=True):
            self._least_rate[rank] = min(rate, self._least_rate.get(rank, np.inf))

    def _judge_window(self, comm: int, rounds: list[np.ndarray]) -> list[tuple[float, Said]]:
        """What is said of a communicator, and when its worst round was reported."""
        longest = np.array([r["took_s"].max() for r in rounds])
        usual = self._baseline(comm, longest)
        if usual is None:
            return []
        base = usual.duration_s
        span = np.array([np.ptp(r["took_s"]) for r in rounds])
        worst = rounds[int(span.argmax())]  # equation 2
        t_max, t_min = float(worst["took_s"].max()), float(worst["took_s"].min())
        if (t_max - base) / base <= usual.threshold:  # equation 3
            return []
        self._slow_windows[comm] = self._slow_windows.get(comm, 0) + 1
        if self._slow_windows[comm] != RECUR:
            return []
        share = (t_max - t_min) / (t_max - base)  # equation 4
        computes = {int(worst["rank"][worst["took_s"].argmin()])}
        known = [rank for rank in worst["rank"].tolist() if rank in self._least_rate]
        sends = {min(known, key=lambda rank: self._least_rate[rank])} if known else set[int]()
        if share > BETA:
            said = Said("slow", frozenset(computes), fault_class="S1")
        elif share < ALPHA:
            said = Said("slow", frozenset(sends), fault_class="S2")
        else:
            said = Said("slow", frozenset(computes | sends), fault_class="S3")
        return [(float(worst["reported_s"].max()), said)]

    def _baseline(self, comm: int, longest_s: np.ndarray) -> Baseline | None:
        """What is usual, None while it is still being learned: this window is a part of it then (equation 1)."""
        if comm not in self._base:
            first_s = self._first_s.setdefault(comm, [])
            first_s += longest_s[: BASE_ROUNDS - len(first_s)].tolist()
            self._base_windows[comm] += 1
            if len(first_s) == BASE_ROUNDS or self._base_windows[comm] == BASE_WINDOWS:
                self._base[comm] = Baseline.of(first_s)
            return None
        return self._base[comm]


def _locate_hang(seen: Telemetry, comm: int, counter: int, hanging: set[int]) -> tuple[set[int], Class]:
    """The decision tree of figure 7, left side."""
    ranks, issued, _ = seen.members(comm)
    known = ranks >= 0
    out = {int(rank) for rank in ranks[known & (issued < counter)]}
    if out:
        return out, "H1"
    others = {int(rank) for rank in ranks[known]} - hanging
    if others:
        return others, "H2"
    rates = seen.store.ranks.rates[ranks[known]]
    rates = rates[rates["samples"] > 0]
    moved = rates["op_sent"].astype(np.int64) + rates["op_received"].astype(np.int64)
    if not len(moved) or np.ptp(moved) == 0:
        return set(), "H3"
    return {int(rank) for rank in rates["rank"][moved == moved.min()]}, "H3"
