"""C4D (paper, section III.A): the four syndromes, from completion times of messages and waits of receivers.

Decided, where the paper gives no number: a cell of the delay matrix is slow above one and a half times the median of
the cells between nodes that carry a quarter of the most or more, since its messages are equally large; and a rank is
late if it waits less than the median of its group by a tenth of the window, where no cell is slow. Both must recur in
two windows. Hangs "are relatively easy" and not discussed: members that have not entered are named, else nobody is.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from whichrank.bench.methods.method import Limits, Said
from whichrank.bench.methods.seen import Seen
from whichrank.detect.iterations import Blocked
from whichrank.model.picture import Floats
from whichrank.model.rows import SYNCHRONISING, Kind

SLOW_CELL = 1.5
LATE_SHARE = 0.1
RECUR = 2
LEAST_BYTES = 100_000
LEAST_CELLS = 3
ALIKE = 4.0
_ALL_WAIT = sorted(SYNCHRONISING - {Kind.BARRIER})
"""With data; the root of a broadcast may wait for nobody."""
_Way = tuple[int, int]


class C4d:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._is_hung = False
        self._window_s = 0.0
        self._before: dict[_Way, tuple[float, float]] = {}
        self._ways: Counter[_Way] = Counter()
        self._late: Counter[int] = Counter()

    def look(self, seen: Seen) -> list[Said]:
        """See `method.Method`."""
        said = self._hang(seen)
        self._window_s = self._window_s or seen.now_s
        if seen.now_s - self._window_s < self._limits.window_s:
            return said
        begun_s, self._window_s = self._window_s, seen.now_s
        cells = self._cells(seen)
        slow = {way for way, cost in cells.items() if cost > SLOW_CELL * float(np.median(list(cells.values())))}
        return [*said, *(self._slow_ways(cells, slow) if slow else self._late_ranks(seen, begun_s))]

    def _hang(self, seen: Seen) -> list[Said]:
        oldest = seen.waiting().oldest(self._limits.hang_s)
        if self._is_hung or oldest is None:
            return []
        self._is_hung = True
        comm, counter = oldest
        ranks, issued, _ = seen.members(comm)
        out = frozenset(ranks[(ranks >= 0) & (issued < counter)].tolist())
        return [Said("hang", out, fault_class="H1" if out else None)]

    def _slow_ways(self, cells: dict[_Way, float], slow: set[_Way]) -> list[Said]:
        self._ways.update(slow)
        told = {way for way in slow if self._ways[way] == RECUR}
        if not told:
            return []
        sources, targets = _full_lines(told, cells, 0), _full_lines(told, cells, 1)
        return [Said("slow", frozenset(sources | targets), frozenset(told), "S2")]

    def _cells(self, seen: Seen) -> dict[_Way, float]:
        """The delay matrix between nodes: seconds per byte from rank to rank, of the ways that carry about as much."""
        ends, _, rows = seen.state.paths.joined()
        node = seen.state.paths.nodes(seen.state.ranks.agent)
        now: dict[_Way, tuple[float, float]] = {}
        for rank, peer, info in zip(ends.rank.tolist(), ends.peer.tolist(), rows["info"], strict=True):
            if 0 <= peer < len(node) and 0 <= rank < len(node) and node[rank] != node[peer]:
                sent, busy = now.get((rank, peer), (0.0, 0.0))
                now[rank, peer] = sent + float(info["bytes_acked"]), busy + float(info["busy_us"])
        before, self._before = self._before, now
        grown = {
            way: (sent - before[way][0], busy - before[way][1]) for way, (sent, busy) in now.items() if way in before
        }
        least = max(LEAST_BYTES, max((sent for sent, _ in grown.values()), default=0.0) / ALIKE)
        cells = {way: busy / sent for way, (sent, busy) in grown.items() if sent >= least}
        return cells if len(cells) >= LEAST_CELLS else {}

    def _late_ranks(self, seen: Seen, begun_s: float) -> list[Said]:
        """Who waits least in its group, by the time in which it has some of its collectives in flight."""
        rows, late = seen.rounds(begun_s), set[int]()
        rows = rows[np.isin(rows["kind"], _ALL_WAIT)]
        for comm in np.unique(rows["comm"]).tolist():
            mine = rows[rows["comm"] == comm]
            ranks = np.unique(mine["rank"])
            waits: Floats = np.array([_lasted_s(mine[mine["rank"] == rank]) for rank in ranks.tolist()])
            least = int(waits.argmin())
            if len(ranks) > 1 and float(np.median(waits) - waits[least]) > LATE_SHARE * (seen.now_s - begun_s):
                late.add(int(ranks[least]))
        self._late.update(late)
        return [Said("slow", frozenset({rank}), fault_class="S1") for rank in sorted(late) if self._late[rank] == RECUR]


def _lasted_s(rows: np.ndarray) -> float:
    """Seconds in which a rank has one of these in flight or several."""
    begin_s = rows["issue_s"]
    begin_ns, end_ns = ((1e9 * at_s).astype(np.int64) for at_s in (begin_s, begin_s + rows["took_s"]))
    return float(Blocked.of(begin_ns, end_ns).length.sum() / 1e9)


def _full_lines(slow: set[_Way], cells: dict[_Way, float], end: int) -> set[int]:
    """Rows or columns of several cells all of which are slow."""
    all_of, slow_of = Counter(way[end] for way in cells), Counter(way[end] for way in slow)
    return {rank for rank, count in slow_of.items() if count > 1 and count == all_of[rank]}
