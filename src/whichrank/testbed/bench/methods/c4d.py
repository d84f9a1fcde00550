"""C4D (paper, section III.A): the four syndromes, from completion times of messages and waits of receivers.

Decided, where the paper gives no number: a cell of the delay matrix is slow above one and a half times the median of
the cells between nodes that carry a quarter of the most or more, since its messages are equally large; and a rank is
late if it waits less than the median of its group by a tenth of the window. Both are looked for in each window and must
recur in two. Hangs "are relatively easy" and not discussed: members that have not entered are named, else nobody is.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from whichrank.detect.own_times import Blocked
from whichrank.model.kinds import SYNCHRONISING, Kind
from whichrank.model.picture import Floats
from whichrank.testbed.bench.methods.method import Limits, Said
from whichrank.testbed.bench.methods.telemetry import Telemetry

SLOW_CELL = 1.5
LATE_SHARE = 0.1
RECUR = 2
LEAST_BYTES = 100_000
LEAST_CELLS = 3
ALIKE = 4.0
_ALL_WAIT = sorted(SYNCHRONISING - {Kind.BARRIER})
"""With data; the root of a broadcast may wait for nobody."""
_Path = tuple[int, int]


class C4d:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._is_hung = False
        self._window_s = 0.0
        self._before: dict[_Path, tuple[float, float]] = {}
        self._paths: Counter[_Path] = Counter()
        self._late: Counter[int] = Counter()

    def examine(self, seen: Telemetry) -> list[Said]:
        """See `method.Method`."""
        said = self._hang(seen)
        self._window_s = self._window_s or seen.now_s
        if seen.now_s - self._window_s < self._limits.window_s:
            return said
        begun_s, self._window_s = self._window_s, seen.now_s
        cells = self._cells(seen)
        slow = {path for path, cost in cells.items() if cost > SLOW_CELL * float(np.median(list(cells.values())))}
        return [*said, *self._slow_paths(cells, slow), *self._late_ranks(seen, begun_s)]

    def _hang(self, seen: Telemetry) -> list[Said]:
        oldest = seen.waiting().oldest(self._limits.hang_s)
        if self._is_hung or oldest is None:
            return []
        self._is_hung = True
        comm, counter = oldest
        ranks, issued, _ = seen.members(comm)
        out = frozenset(ranks[(ranks >= 0) & (issued < counter)].tolist())
        return [Said("hang", out, fault_class="H1" if out else None)]

    def _slow_paths(self, cells: dict[_Path, float], slow: set[_Path]) -> list[Said]:
        self._paths.update(slow)
        reported = {path for path in slow if self._paths[path] == RECUR}
        if not reported:
            return []
        sources, targets = _full_lines(reported, cells, 0), _full_lines(reported, cells, 1)
        return [Said("slow", frozenset(sources | targets), frozenset(reported), "S2")]

    def _cells(self, seen: Telemetry) -> dict[_Path, float]:
        """The delay matrix between nodes: seconds per byte from rank to rank, of the paths that carry about as much."""
        now = seen.between_nodes()
        before, self._before = self._before, now
        grown = {
            path: (sent - before[path][0], busy - before[path][1])
            for path, (sent, busy) in now.items()
            if path in before
        }
        least = max(LEAST_BYTES, max((sent for sent, _ in grown.values()), default=0.0) / ALIKE)
        cells = {path: busy / sent for path, (sent, busy) in grown.items() if sent >= least}
        return cells if len(cells) >= LEAST_CELLS else {}

    def _late_ranks(self, seen: Telemetry, begun_s: float) -> list[Said]:
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


def _full_lines(slow: set[_Path], cells: dict[_Path, float], end: int) -> set[int]:
    """Rows or columns of several cells all of which are slow."""
    all_of, slow_of = Counter(path[end] for path in cells), Counter(path[end] for path in slow)
    return {rank for rank, count in slow_of.items() if count > 1 and count == all_of[rank]}
