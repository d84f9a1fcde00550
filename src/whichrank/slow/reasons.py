"""Why a rank is slow, as far as its node's evidence goes: each reason must explain a good part of the excess.

All is compared with ranks in the same position, since what all have explains nothing about one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.detect.slow import GREW, Past
from whichrank.model.clause import Clause, Says, clause
from whichrank.model.evidence import RAN, Evidence
from whichrank.model.incident import Reason
from whichrank.model.iterations import Floats, Ints, Window
from whichrank.slow.node_usage import Rates

EXPLAINS: Final = 0.4
"""Share of the excess that a reason must account for."""
IDLE: Final = 0.3
"""Share of the excess that may be CPU time of a rank that waits."""
STOPPED: Final = 0.05
"""Share of snapshots in which a rank is stopped."""
SATURATED: Final = 0.8
"""Share of the cores that it may use that a process which is limited uses."""
LEAST_FAULTS: Final = 10.0
"""Pages a second that were read from storage, beyond those of its peers."""
LEAST_READ: Final = 1e6
"""Bytes a second, the same."""


@dataclass(frozen=True)
class Why:
    """A reason, and what is said of it."""

    reason: Reason | None = None
    clauses: tuple[Clause, ...] = ()
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class _Case:
    """A slow rank beside its peers."""

    rates: Rates
    index: int
    peers: Ints
    where: str
    excess: float
    in_loader: float

    def mine(self, column: Floats) -> float:
        return float(column[self.index])

    def theirs(self, column: Floats) -> float:
        """The median of its peers, or of all others where it has none; NaN if it is not known."""
        others = column[self.peers] if len(self.peers) else np.delete(column, self.index)
        return float(np.nanmedian(others)) if len(others) and not np.isnan(others).all() else math.nan

    def more(self, column: Floats) -> float:
        """Beyond what peers have, 0 if it is not known."""
        beyond = self.mine(column) - self.theirs(column)
        return 0.0 if math.isnan(beyond) else beyond

    def explained_by(self, column: Floats) -> bool:
        return self.more(column) >= EXPLAINS * self.excess

    def computes(self) -> bool:
        """So much that nothing it waits for can be the reason."""
        return self.more(self.rates.main_cpu) > IDLE * self.excess

    def fact(self, what: str, value: float, unit: str | None = None) -> tuple[Evidence, ...]:
        return () if math.isnan(value) else (Evidence(what=what, value=value, unit=unit, where=self.where),)

    def seconds(self, what: str, column: Floats) -> tuple[Evidence, ...]:
        return self.fact(what, round(self.mine(column), 3), "s/s")

    def ran(self) -> tuple[Evidence, ...]:
        return self.seconds(RAN, self.rates.main_cpu)


def why_slow(rates: Rates, index: int, peers: Ints, rank: int, excess: float, in_loader: float) -> Why:
    """The first reason that explains enough, those first that leave no doubt.

    Args:
        rates: Of all ranks in the window.
        index: The rank.
        peers: Indices of ranks in the same position; without any, all others.
        rank: Its number.
        excess: Own time beyond the usual, in seconds per second.
        in_loader: Share of its time in a data loader, beyond that of a peer.
    """
    case = _Case(rates, index, peers, f"rank {rank}", excess, in_loader)
    return next((why for reason in _REASONS if (why := reason(case))), Why())


def _is_stopped(case: _Case) -> Why | None:
    stopped = case.more(case.rates.stopped)
    if stopped < STOPPED or not case.explained_by(case.rates.stopped):
        return None
    fact = case.fact("share of checks in which it is stopped", round(stopped, 2))
    return Why(Reason.STOPPED, (clause(Says.STOPPED_AGAIN_AND_AGAIN),), fact)


def _collects(case: _Case) -> Why | None:
    collected = case.rates.collected
    # Whoever gets less CPU collects for longer: that part is no reason of its own.
    held_up = sum(max(0.0, case.more(column)) for column in (case.rates.delay, case.rates.throttled))
    if case.more(collected) - held_up < EXPLAINS * case.excess:
        return None
    said = clause(Says.COLLECTS_GARBAGE, share=min(case.mine(collected), 1.0))
    return Why(Reason.GARBAGE_COLLECTION, (said,), case.seconds("garbage collection", collected))


def _is_throttled(case: _Case) -> Why | None:
    limited = _limited(case)
    if not limited or not case.explained_by(case.rates.throttled):
        return None
    held = case.seconds("throttled by its control group", case.rates.throttled)
    return Why(Reason.CPU_LIMIT, limited.clauses, (*limited.evidence, *held))


def _lacks_cpu(case: _Case) -> Why | None:
    rates = case.rates
    if not case.explained_by(rates.delay):
        return None
    waited, limited = case.seconds("ready, and without a CPU", rates.delay), _limited(case)
    if limited and case.mine(rates.cpu) >= SATURATED * case.mine(_cores(rates)):
        return Why(Reason.CPU_LIMIT, limited.clauses, (*limited.evidence, *waited))
    said = clause(Says.WITHOUT_CPU, share=case.mine(rates.delay))
    if math.isnan(case.mine(rates.limit_cores)):
        return Why(None, (said, clause(Says.LIMIT_UNREADABLE)), waited)
    return Why(Reason.CPU_CONTENTION, (said,), (*waited, *(limited.evidence if limited else ())))


def _is_robbed(case: _Case) -> Why | None:
    taken = case.rates.taken()
    if not case.explained_by(taken):
        return None
    said = clause(Says.TAKEN_BY_HYPERVISOR, share=case.mine(taken))
    return Why(Reason.CPU_CONTENTION, (said,), case.seconds("taken by the hypervisor", taken))


def _has_slow_clock(case: _Case) -> Why | None:
    mine, theirs = case.mine(case.rates.clock_mhz), case.theirs(case.rates.clock_mhz)
    if not theirs > 0 or not (1 - mine / theirs) * case.mine(case.rates.main_cpu) >= EXPLAINS * case.excess:
        return None
    said = clause(Says.SLOW_CLOCK, ghz=mine / 1e3, usual_ghz=theirs / 1e3)
    return Why(Reason.DEVICE_CLOCK, (said,), case.fact("clock of its core", round(mine), "MHz"))


def _lacks_memory(case: _Case) -> Why | None:
    faults, stall = case.rates.major_faults, case.rates.memory_stall
    if case.computes() or case.more(faults) < LEAST_FAULTS or not case.explained_by(stall):
        return None
    said = clause(Says.MEMORY_READ_BACK, pages=case.mine(faults))
    read = case.fact("pages read back", round(case.mine(faults)), "1/s")
    stalled = case.seconds("somebody on its node waits for memory", stall)
    return Why(Reason.MEMORY_PRESSURE, (said,), (*read, *stalled, *case.ran()))


def _waits_for_loader(case: _Case) -> Why | None:
    if case.computes() or case.in_loader < EXPLAINS * case.excess:
        return None
    seen = Evidence(
        what="time in its data loader beyond that of a peer",
        value=round(100 * case.in_loader),
        unit="% of the iteration time",
        where=case.where,
    )
    return Why(Reason.DATA_WAIT, (clause(Says.WAITS_FOR_DATA),), (seen, *case.ran()))


def _waits_for_storage(case: _Case) -> Why | None:
    read, stall = case.rates.read_bytes, case.rates.io_stall
    if case.computes() or case.more(read) < LEAST_READ or not case.explained_by(stall):
        return None
    said = clause(Says.SLOW_STORAGE, megabytes=case.mine(read) / 1e6)
    amount = case.fact("read from storage", round(case.mine(read) / 1e6), "MB/s")
    stalled = case.seconds("somebody on its node waits for storage", stall)
    return Why(Reason.DATA_WAIT, (said,), (*amount, *stalled, *case.ran()))


_REASONS: Final[tuple[Callable[[_Case], Why | None], ...]] = (
    *(_is_stopped, _collects, _is_throttled, _lacks_cpu, _is_robbed, _has_slow_clock),
    *(_lacks_memory, _waits_for_loader, _waits_for_storage),
)


def _cores(rates: Rates) -> Floats:
    return np.minimum(rates.limit_cores, rates.allowed_cores)


def _limited(case: _Case) -> Why | None:
    """Fewer cores than its peers have."""
    cores = _cores(case.rates)
    mine, theirs = case.mine(cores), case.theirs(cores)
    if not 0 < mine < theirs:
        return None
    by_group = case.mine(case.rates.limit_cores) <= case.mine(case.rates.allowed_cores)
    said = clause(Says.LIMITED_BY_GROUP if by_group else Says.LIMITED_BY_AFFINITY, cores=mine, usual=theirs)
    return Why(Reason.CPU_LIMIT, (said,), case.fact("cores that it may use", round(mine, 2)))


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
    return Why() if with_cpu_s >= GREW * (own_s / factor - past.without_cpu_s) else _no_cpus(without_cpu)


def why_uneven(rates: Rates, lost: float) -> Why:
    """The reason why now this rank takes longer and now that one, if their nodes have it.

    Args:
        rates: Of all ranks in the window.
        lost: Share of an iteration that would not be lost if all took as long.
    """
    without_cpu = rates.without_cpu()
    return _no_cpus(without_cpu) if without_cpu >= EXPLAINS * lost else Why()


def why_longer(rates: Rates, window: Window, past: Past, longer_s: float) -> Why:
    """The reason why iterations take longer by so much, if the nodes have it: less CPU than there was.

    Args:
        rates: Of all ranks in the window.
        window: Iterations.
        past: As it was.
        longer_s: Seconds per iteration.
    """
    without_cpu = rates.without_cpu()
    more_s = without_cpu * window.iteration_s - past.without_cpu_s
    return _no_cpus(without_cpu) if more_s >= EXPLAINS * longer_s else Why()


def _no_cpus(without_cpu: float) -> Why:
    fact = Evidence(what="ready, and without a CPU", value=round(without_cpu, 3), unit="s/s", where="in the median")
    return Why(Reason.CPU_CONTENTION, (), (fact,))
