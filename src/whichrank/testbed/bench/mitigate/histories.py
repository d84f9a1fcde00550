"""The planner against who knows when slowness ends: replayed histories with the durations of Greyhound (section 3).

Slowness of computation lasts about 10 minutes, of links 24, of jobs of a thousand devices 72. Their logarithms are
normal here, with a factor of three each way in two thirds of all. How slow is drawn too. What is paid is slow
iterations, and what steps cost; the least that could have been is one level, taken at once or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from whichrank.act.planner import Level, Option, Planner

DURATIONS_S: Final = {"computation": 600.0, "link": 1440.0, "at scale": 4320.0}
HISTORIES: Final = 300
ITERATION_S: Final = 5.0
LEVELS: Final = {
    "computation": {Level.REBALANCE: (10.0, 0.2), Level.RESTART: (1200.0, 0.0)},
    "link": {Level.TOPOLOGY: (60.0, 0.2), Level.RESTART: (1200.0, 0.0)},
    "at scale": {Level.REBALANCE: (10.0, 0.5), Level.TOPOLOGY: (60.0, 0.2), Level.RESTART: (1200.0, 0.0)},
}
"""Seconds that a level costs once, and the share of the slowness that it leaves."""


class HistoriesResult(msgspec.Struct, frozen=True, kw_only=True):
    """Of one kind of slowness."""

    kind: str
    ratios: tuple[float, ...]
    """Paid over the least, by history."""
    paid_s: float
    least_s: float
    ignored_s: float
    """In all, if nothing were ever done."""


def replay_histories(seed: int = 1) -> list[HistoriesResult]:
    """All kinds."""
    rng = np.random.default_rng(seed)
    return [_replayed(kind, rng) for kind in DURATIONS_S]


def _replayed(kind: str, rng: np.random.Generator) -> HistoriesResult:
    paid, least, ignored = (np.zeros(HISTORIES) for _ in range(3))
    for at in range(HISTORIES):
        lasts_s = DURATIONS_S[kind] * float(np.exp(rng.normal(0.0, np.log(3.0))))
        slow_s = ITERATION_S * float(rng.uniform(1.1, 3.0))
        paid[at], least[at], ignored[at] = _history(kind, lasts_s, slow_s)
    ratios = tuple((paid / np.maximum(least, 1e-9)).tolist())
    return HistoriesResult(
        kind=kind, ratios=ratios, paid_s=float(paid.sum()), least_s=float(least.sum()), ignored_s=float(ignored.sum())
    )


def _history(kind: str, lasts_s: float, slow_s: float) -> tuple[float, float, float]:
    """What is paid, the least, and what it costs to ignore it: seconds over those of healthy iterations."""
    lost_s = slow_s - ITERATION_S
    takes_s = {level: ITERATION_S + left * lost_s for level, (_, left) in LEVELS[kind].items()}
    options = [Option(level, cost_s, takes_s[level]) for level, (cost_s, _) in LEVELS[kind].items()]
    planner, now_s, paid_s, slow = Planner(), 0.0, 0.0, frozenset({"it"})
    while now_s < lasts_s:
        took_s = takes_s.get(planner.level, slow_s)
        now_s += took_s
        paid_s += took_s - ITERATION_S
        planner.findings(slow)
        if step := planner.advance(now_s, [took_s], ITERATION_S, options):
            now_s += step.overhead_s
            paid_s += step.overhead_s
            planner.made(step, now_s)
    ignored_s = lost_s * np.ceil(lasts_s / slow_s)
    at_once = [
        cost_s + (takes_s[level] - ITERATION_S) * np.ceil(max(lasts_s - cost_s, 0.0) / takes_s[level])
        for level, (cost_s, _) in LEVELS[kind].items()
    ]
    return paid_s, min(ignored_s, *at_once), float(ignored_s)


def histories_table(results: Sequence[HistoriesResult]) -> str:
    """A line for each kind."""
    lines = [
        "| slowness of | n | paid over the least, median | most | in all | in all, if it is ignored |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one.kind} | {len(one.ratios)} | {np.median(one.ratios):.2f} | {max(one.ratios):.2f}"
        f" | {one.paid_s / one.least_s:.2f} | {one.ignored_s / one.least_s:.2f} |"
        for one in results
    ]
    return "\n".join(lines)
