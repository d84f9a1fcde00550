"""MegaTrace's rule for hangs (paper, section III.C and algorithm 1): no telemetry for twice a batch.

Decided: a batch is an iteration, by its optimizer steps. "Completed batches" of a rank are the operations that it has
begun, in its group: what it waits in counts. Of those with the fewest the one whose latest word is the oldest is the
halt point; the paper's minimum of `time_diff` does not say between what. Of the halt points of several groups those
count that wait for nobody themselves. Sends and receives are left out. Network anomalies are connections that send
again in vain, in place of work requests that do not complete: a kernel has done so three times after two seconds, and
the paper validates the network before it localises.
"""

from __future__ import annotations

import numpy as np

from whichrank.bench.methods.method import Limits, Said
from whichrank.bench.methods.seen import Seen

BATCHES = 2.0
WARM_UP = 3
VALIDATED_S = 2.5


class MegaTrace:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._is_told = False
        self._counts = b""
        self._since_s = 0.0

    def look(self, seen: Seen) -> list[Said]:
        """See `method.Method`."""
        picture = seen.picture
        counts = picture.member_done.tobytes() + picture.member_issued.tobytes() + picture.pairs.tobytes()
        counts += picture.gone.tobytes()
        if counts != self._counts:
            self._counts, self._since_s, self._is_told = counts, seen.now_s, False
            return []
        batch_s = _batch_s(seen)
        silent_s = seen.now_s - self._since_s
        if self._is_told or not batch_s or silent_s <= BATCHES * batch_s:
            return []
        ends, _ = seen.state.paths.ends(seen.now_s)
        dead = {(int(a), int(b)) for a, b in zip(ends.rank[ends.dead], ends.peer[ends.dead], strict=True) if b >= 0}
        if not dead and silent_s < VALIDATED_S:
            return []
        self._is_told = True
        if dead:
            return [Said("hang", links=frozenset(dead), fault_class="H3")]
        return [Said("hang", frozenset(_halt_point(seen)), fault_class="H1")]


def _batch_s(seen: Seen) -> float:
    """Usual time between steps of a rank, 0 unknown."""
    if not seen.steps:
        return 0.0
    first = seen.steps[0][0]
    at = np.array([t for rank, t in seen.steps if rank == first])[WARM_UP:]
    return float(np.diff(at).mean()) if len(at) > 1 else 0.0


def _halt_point(seen: Seen) -> set[int]:
    """Of each group that is apart, of the ranks that have begun least, the one that has stood still for longest.

    Of these only those that wait in no group for others, if there are some.
    """
    named: set[int] = set()
    issued, waiting = seen.state.ranks, seen.waiting()
    victims: set[int] = set()
    for comm in range(len(seen.picture.comm_size)):
        ranks, started, _ = seen.members(comm)
        known = ranks >= 0
        ranks, started = ranks[known], started[known]
        if not len(ranks) or np.ptp(started) == 0:
            continue
        least = started.min()
        behind = ranks[started == least]
        last = issued.went_on_s[behind]
        named.add(int(behind[last.argmin()]))
        ahead = (waiting.comm == comm) & (waiting.counter > least)
        victims |= set(waiting.rank[ahead].tolist())
    return named - victims or named
