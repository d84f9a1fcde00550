"""Operation counts, as NCCL's RAS compares them (facts: NCCL documentation, ras.rst; issues #1730, #1911).

For each communicator and each of five types of collectives the counts of launched operations are compared; where they
differ, the smaller group of ranks with equal counts is printed. All-to-all, gather, scatter, send and receive are not
counted. Processes that no longer answer, ended, stopped or out of reach, are missing ranks. Equal counts are "running,
OK".

Decided: where records were lost, so that the counts by type are too small, the count of all collectives is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from whichrank.model.kinds import Kind, is_collective
from whichrank.testbed.bench.methods.hang_watch import HangWatch
from whichrank.testbed.bench.methods.method import Limits, Said
from whichrank.testbed.bench.methods.telemetry import Telemetry

COUNTERS: Final[Mapping[str, frozenset[Kind]]] = {
    "Broadcast": frozenset({Kind.BROADCAST}),
    "Reduce": frozenset({Kind.REDUCE}),
    "AllGather": frozenset({Kind.ALL_GATHER, Kind.ALL_GATHER_COALESCED}),
    "ReduceScatter": frozenset({Kind.REDUCE_SCATTER, Kind.REDUCE_SCATTER_COALESCED}),
    "AllReduce": frozenset({Kind.ALL_REDUCE, Kind.ALL_REDUCE_COALESCED, Kind.BARRIER}),
}
"""What RAS counts, and the kinds of operations that torch launches as such: a barrier of NCCL is an all-reduce."""
_COLLECTIVES: Final = tuple(kind for kind in Kind if kind != Kind.NONE and is_collective(kind))


class Ras:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._watch = HangWatch(limits.hang_s)

    def examine(self, seen: Telemetry) -> list[Said]:
        """See `method.Method`."""
        if not self._watch.begins(seen):
            return []
        picture = seen.picture
        silent = picture.gone | picture.stopped | (picture.present & ~picture.fresh)
        if silent.any():
            return [Said("hang", frozenset(np.flatnonzero(silent).tolist()), fault_class="H1")]
        named: set[int] = set()
        for comm in range(len(picture.comm_size)):
            for counts in counters(seen, comm).values():
                named |= _minority(counts)
        return [Said("hang", frozenset(named), fault_class="H1" if named else None)]


def counters(seen: Telemetry, comm: int) -> dict[str, dict[int, int]]:
    """Launched operations of a communicator: by type, then by rank.

    Args:
        seen: The job.
        comm: Index of the communicator.

    Returns:
        The five counters of RAS; `{"all": ...}`, one count of all collectives, where records of a rank were lost.
    """
    ranks, issued, _ = seen.members(comm)
    total = {int(rank): int(count) for rank, count in zip(ranks, issued, strict=True) if rank >= 0}
    ops = seen.picture.ops
    ops = ops[(ops["comm"] == comm) & is_collective(ops["kind"]) & ~ops["failed"]]
    flying = Counter(zip(ops["rank"].tolist(), ops["kind"].tolist(), strict=True))

    def launched(rank: int, kinds: frozenset[Kind] | tuple[Kind, ...]) -> int:
        return seen.launched.of(comm, rank, kinds) + sum(flying[rank, int(kind)] for kind in kinds)

    if any(launched(rank, _COLLECTIVES) != count for rank, count in total.items()):
        return {"all": total}
    return {name: {rank: launched(rank, kinds) for rank in total} for name, kinds in COUNTERS.items()}


def _minority(counts: Mapping[int, int]) -> set[int]:
    """The smallest group of ranks with equal counts; of two that are as small, the one that is behind."""
    groups = Counter(counts.values())
    if len(groups) < 2:
        return set()
    least = min(groups, key=lambda count: (groups[count], count))
    return {rank for rank, count in counts.items() if count == least}
