"""Why a rank is slow, as far as its node's evidence goes: each reason must explain a good part of the excess.

All is compared with ranks in the same position, since what all have explains nothing about one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.analyzer.node_usage import Rates
from whichrank.detect.slow import GREW, Past
from whichrank.model.incident import Evidence, Reason
from whichrank.model.iterations import Floats, Ints, Window

EXPLAINS: Final = 0.4
"""Share of the excess that a reason must account for."""
IDLE: Final = 0.3
"""Share of the excess that may be CPU time of a rank that waits."""
STOPPED: Final = 0.05
"""Share of looks in which a rank is stopped."""
SATURATED: Final = 0.8
"""Share of the cores that it may use that a process which is limited uses."""


@dataclass(frozen=True)
class Why:
    """A reason with its words, which follow "its own time is ..., "."""

    reason: Reason | None = None
    words: str = ""
    evidence: tuple[Evidence, ...] = ()


def why_slow(rates: Rates, index: int, peers: Ints, rank: int, excess: float, in_loader: float) -> Why:
    """The reason that explains most, if any does.

    Args:
        rates: Of all ranks in the window.
        index: The rank.
        peers: Indices of ranks in the same position; without any, all others.
        rank: Its number.
        excess: Own time beyond the usual, in seconds per second.
        in_loader: Share of looks at its stack in which it was in a data loader.
    """
    where = f"rank {rank}"

    def more(column: Floats) -> float:
        """Beyond what peers have, 0 if it is not known."""
        others = column[peers] if len(peers) else np.delete(column, index)
        if not len(others) or np.isnan(others).all() or math.isnan(column[index]):
            return 0.0
        return float(column[index] - np.nanmedian(others))

    def seconds(what: str, column: Floats) -> Evidence:
        return Evidence(what=what, value=round(float(column[index]), 3), unit="s/s", where=where)

    stopped = more(rates.stopped)
    if stopped >= STOPPED:
        fact = Evidence(what="share of looks in which it is stopped", value=round(stopped, 2), where=where)
        return Why(Reason.STOPPED, "somebody stops and continues its process", (fact,))
    if more(rates.collected) >= EXPLAINS * excess:
        words = f"its garbage collector takes {_percent(rates.collected[index])} of its time"
        return Why(Reason.GARBAGE_COLLECTION, words, (seconds("garbage collection", rates.collected),))
    limited = _limited(rates, index, peers, where)
    if more(rates.throttled) >= EXPLAINS * excess and limited:
        return Why(
            Reason.CPU_LIMIT,
            limited.words,
            (*limited.evidence, seconds("throttled by its control group", rates.throttled)),
        )
    if more(rates.delay) >= EXPLAINS * excess:
        waited = seconds("ready, and without a CPU", rates.delay)
        if limited and rates.cpu[index] >= SATURATED * min(rates.allowed_cores[index], rates.limit_cores[index]):
            return Why(Reason.CPU_LIMIT, limited.words, (*limited.evidence, waited))
        words = f"it is ready and gets no CPU for {_percent(rates.delay[index])} of the time"
        return Why(Reason.CPU_CONTENTION, words, (waited, *(limited.evidence if limited else ())))
    if more(rates.taken()) >= EXPLAINS * excess:
        words = f"the hypervisor of its node takes {_percent(rates.taken()[index])} of its time"
        return Why(Reason.CPU_CONTENTION, words, (seconds("taken by the hypervisor", rates.taken()),))
    if in_loader >= EXPLAINS * excess and more(rates.main_cpu) <= IDLE * excess:
        fact = seconds("its main thread runs", rates.main_cpu)
        seen = Evidence(what="share of looks in which it is in a data loader", value=round(in_loader, 2), where=where)
        return Why(Reason.DATA_WAIT, "it waits for data", (seen, fact))
    return Why()


def why_all_slow(rates: Rates, window: Window, past: Past, factor: float) -> Why:
    """The reason why all ranks take longer than they did, if their nodes have it.

    Args:
        rates: Of all ranks in the window.
        window: Iterations.
        past: As it was.
        factor: Times the past.
    """
    without_cpu, own_s = rates.without_cpu(), float(np.median(window.own_s))
    with_cpu_s = own_s - without_cpu * window.iteration_s
    if with_cpu_s >= GREW * (own_s / factor - past.without_cpu_s):
        return Why()
    fact = Evidence(what="ready, and without a CPU", value=round(without_cpu, 3), unit="s/s", where="in the median")
    return Why(Reason.CPU_CONTENTION, "", (fact,))


def _limited(rates: Rates, index: int, peers: Ints, where: str) -> Why | None:
    """Fewer cores than its peers have."""
    cores = np.minimum(rates.limit_cores, rates.allowed_cores)
    others = cores[peers] if len(peers) else np.delete(cores, index)
    if not len(others) or np.isnan(cores).any() or cores[index] >= float(np.median(others)) or not cores[index]:
        return None
    by_group = rates.limit_cores[index] <= rates.allowed_cores[index]
    who = "its control group" if by_group else "its affinity"
    mine, theirs = f"{cores[index]:g}", f"{float(np.median(others)):g}"
    words = f"{who} limits it to {mine} core{'s' * (mine != '1')} while its peers have {theirs}"
    fact = Evidence(what="cores that it may use", value=round(float(cores[index]), 2), where=where)
    return Why(Reason.CPU_LIMIT, words, (fact,))


def _percent(share: float) -> str:
    return f"{share:.0%}"
