"""Holmes: iterations whose collectives take long, and a search from there to the rank that entered late.

MegaTrace (section II.C) describes it as "mathematical characteristics and search-based methods" on calls of
collectives; no more of it is in the papers that we have. It knows no hang here.

Decided:
- An iteration is abnormal if some rank stands in collectives for longer than usual: by three standard deviations
  (estimated by the median absolute deviation) and by a tenth. What is usual is the median of the first iterations.
- Clocks of nodes differ, so the last to enter a collective is the rank that stands in it for the shortest time.
- The search begins at the collective in which a rank stands for the most beyond usual, and goes to its last member. If
  that one has itself stood in operations before, for half of that beyond usual in sum, it goes on to the last member of
  the longest one, or to the sender of that message; otherwise it ends there.
- A rank must be found in most iterations of a window, as for MegaTrace.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whichrank.testbed.bench.paper.finding import Finding, Part, that_recur
from whichrank.testbed.bench.paper.observed import Configuration, Floats, Ints, Observed
from whichrank.testbed.sim.program import CP, DP, EP, TP, WORLD, Do

USUAL: Final = 8
"""Iterations from which is taken what is usual: fewer than come before a fault."""
DEVIATIONS: Final = 3.0
"""Standard deviations beyond usual from which an iteration is abnormal, as is common."""
LEAST: Final = 0.1
"""Share beyond usual from which it is: without noise the deviation is near zero."""
PASSED_ON: Final = 0.5
"""Share of the excess that a rank must have waited for another one, to be its victim."""
_TO_DEVIATION: Final = 1.4826
"""Standard deviation of normal noise, in median absolute deviations."""


def name_slow(observed: Observed) -> list[Finding]:
    """Who entered late in most iterations of a window."""
    if observed.iterations <= USUAL:
        return []
    search = _Search(observed.config)
    excess_s = [one - np.median(one[:USUAL], axis=0) for one in observed.waits_s]
    found = list[dict[int, Part]]()
    for iteration, is_abnormal in enumerate(_abnormal(observed, search).tolist()):
        rank = search.run([one[iteration] for one in observed.waits_s], [one[iteration] for one in excess_s])
        found.append({rank: Part()} if is_abnormal and rank >= 0 else {})
    return that_recur(found)


def _abnormal(observed: Observed, search: _Search) -> np.ndarray:
    """Which iterations are, (iterations,)."""
    stood_s = np.max(
        [one[..., at].sum(axis=-1).max(axis=1) for one, at in zip(observed.waits_s, search.shares, strict=True)], axis=0
    )
    usual_s = float(np.median(stood_s[:USUAL]))
    deviation_s = _TO_DEVIATION * float(np.median(np.abs(stood_s[:USUAL] - usual_s)))
    return np.asarray(stood_s > usual_s + np.maximum(DEVIATIONS * deviation_s, LEAST * usual_s))


class _Search:
    """Through the operations of one iteration.

    Attributes:
        shares: By place in the pipeline, the events that are collectives.
    """

    def __init__(self, config: Configuration) -> None:
        self._items = [program.items for program in config.programs]
        self.shares: list[Ints] = [
            np.array([at for at, item in enumerate(items) if item.do is Do.SHARE], np.int64) for items in self._items
        ]
        self._n, self._group = config.layout.per_stage, _groups(config)
        self._sent = {
            (item.peer, item.key): (place, at)
            for place, items in enumerate(self._items)
            for at, item in enumerate(items)
            if item.do is Do.SEND
        }

    def run(self, waits_s: list[Floats], excess_s: list[Floats]) -> int:
        """The rank at which the search ends, -1 none; both by place in the pipeline, (per_stage, events)."""
        most_s = [float(excess[:, at].max(initial=0.0)) for excess, at in zip(excess_s, self.shares, strict=True)]
        place = int(np.argmax(most_s))
        if most_s[place] <= 0:
            return -1
        rank, column = divmod(int(excess_s[place][:, self.shares[place]].argmax()), len(self.shares[place]))
        event, visited = int(self.shares[place][column]), set[tuple[int, int]]()
        while (place, rank) not in visited:
            visited.add((place, rank))
            place, rank, event = self._last_of(place, rank, event, waits_s)
            earlier_s = excess_s[place][rank, :event]
            if earlier_s.clip(min=0.0).sum() < PASSED_ON * max(most_s):
                break
            event = int(earlier_s.argmax())
        return place * self._n + rank

    def _last_of(self, place: int, rank: int, event: int, waits_s: list[Floats]) -> tuple[int, int, int]:
        """For whom a rank waits in an event: place in the pipeline, rank at this place, and event of that one."""
        item = self._items[place][event]
        if item.do is Do.RECEIVE:
            sender, at = self._sent[place, item.key]
            return sender, rank, at
        if item.slot == WORLD:
            # All stand in it last of all.
            ends = [int(at[-1]) for at in self.shares]
            last = int(np.argmin([waits[:, at].min() for waits, at in zip(waits_s, ends, strict=True)]))
            return last, int(waits_s[last][:, ends[last]].argmin()), ends[last]
        members = np.flatnonzero(self._group[item.slot] == self._group[item.slot][rank])
        return place, int(members[waits_s[place][members, event].argmin()]), event


def _groups(config: Configuration) -> dict[int, Ints]:
    """By slot, a number for the group of each rank at one place of the pipeline, (per_stage,)."""
    layout = config.layout
    data = layout.place("tp")
    return {
        slot: group[: layout.per_stage]
        for slot, group in {
            TP: layout.group("tp"), CP: layout.group("cp"), EP: layout.group("ep"), DP: data,
        }.items()
    }  # fmt: skip
