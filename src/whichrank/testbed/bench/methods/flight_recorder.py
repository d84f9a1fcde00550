"""Matching of recorded collectives, as torchfrtrace does it (facts: PyTorch, Flight Recorder section 1.5).

For each group the first collective that not all members have recorded names those that lack it; one that members have
recorded with another type, size or data type names those that differ from most. Send and receive are not recorded for
Gloo. It is run by hand when the job has hung for long enough.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from whichrank.model.kinds import is_collective
from whichrank.testbed.bench.methods.hang_watch import HangWatch
from whichrank.testbed.bench.methods.method import Limits, Said
from whichrank.testbed.bench.methods.telemetry import ROUNDS, Telemetry, told_apart

ENTRIES = 2000
"""Of each rank: torch's default."""
_Entries = dict[int, int]
"""Signature by counter."""


class FlightRecorder:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._watch = HangWatch(limits.hang_s)

    def examine(self, seen: Telemetry) -> list[Said]:
        """See `method.Method`."""
        if not self._watch.begins(seen):
            return []
        missing: set[int] = set()
        different: set[int] = set()
        for comm, recorded in _recorded(seen).items():
            members = [int(rank) for rank in seen.members(comm)[0] if rank >= 0]
            absent, odd = _first_mismatch(members, recorded)
            missing |= absent
            different |= odd
        named = frozenset(different or missing)
        return [Said("hang", named, fault_class="H2" if different else "H1" if missing else None)]


def _recorded(seen: Telemetry) -> dict[int, dict[int, _Entries]]:
    """By communicator and rank, what its recorder holds."""
    done = seen.rounds(-np.inf)
    ops = seen.picture.ops
    flying = np.zeros(len(ops), ROUNDS)
    for name in ("comm", "counter", "rank", "kind", "issue_s"):
        flying[name] = ops[name]
    flying["signature"] = told_apart(ops["kind"], ops["dtype"], ops["count"], ops["flags"])
    rows = np.concatenate([done, flying[is_collective(flying["kind"])]])
    found: dict[int, dict[int, _Entries]] = defaultdict(lambda: defaultdict(dict))
    for rank in np.unique(rows["rank"]).tolist():
        mine = rows[rows["rank"] == rank]
        mine = mine[np.argsort(mine["issue_s"], kind="stable")][-ENTRIES:]
        for row in mine:
            found[int(row["comm"])][rank][int(row["counter"])] = int(row["signature"])
    return found


def _first_mismatch(members: list[int], recorded: dict[int, _Entries]) -> tuple[set[int], set[int]]:
    """Who lacks the first collective that not all have, and who has issued another than most in the first that differs.

    What was recorded before every member's first entry is left out.
    """
    if not recorded:
        return set(), set()
    begin = max(min(entries) for entries in recorded.values() if entries)
    for counter in sorted({c for entries in recorded.values() for c in entries if c >= begin}):
        have = {rank: recorded[rank][counter] for rank in members if counter in recorded.get(rank, {})}
        lack = set(members) - set(have)
        if lack:
            return lack, set()
        usual, count = Counter(have.values()).most_common(1)[0]
        if count < len(have):
            return set(), {rank for rank, signature in have.items() if signature != usual}
    return set(), set()
