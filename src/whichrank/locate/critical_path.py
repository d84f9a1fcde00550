"""What if a rank had been quicker? Iterations are gone through again, with other times.

MegaTrace (section II.D) blames only what lies on the critical path, since bubbles absorb the rest. Here the graph is
what really happened: for each rank the operations that it issued and those it was blocked on, with its own time in
between; for each round who had to be there and how long the transfer took. Going through it with a rank's own times
replaced says how much sooner the iterations would have been over: nothing, if others were late anyway.

Times are durations on one host each, so clocks need not agree: all ranks start at zero, and the first iteration, in
which they fall into step, does not count. All ranks go one event further at a time. `events` makes the events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.iterations import Floats, Ints, Ops

ISSUE, BLOCK, END = 0, 1, 2
MOST_PEERS: Final = 64
"""Of which the usual own times are taken."""
MOST_AT_ONCE: Final = 1 << 22
"""Own times of events that are gone through in one pass, at most."""


@dataclass(frozen=True)
class Course:
    """What ranks did in some iterations, as events sorted by rank and time.

    Attributes:
        rank: Index of the rank of each event.
        what: ISSUE, BLOCK or END (of an iteration).
        begin_ns: When the event begins, on the clock of its rank.
        op: Index of the operation, -1 for END.
        ops: Operations of these iterations.
        own_s: Seconds of the rank's own before the event.
        iteration: In which it is, from 0.
        gap: Operations that the rank has issued before it in this iteration.
        elements: For ISSUE: the size of the operation.
        round: Index of the round, -1 none.
        needs: For BLOCK: 0 nobody (it lasts as long as it did), 1 all members, 2 the root.
        lasted_s: For BLOCK: how long it did.
        is_root: The rank is the root of the round.
        first: Of each rank, its first event; one more at the end.
        transfer_s: Of each round.
        shortest_s: Of each round its shortest duration over its members: of messages on a slow link their transfer.
        alone_s: The same, from the end of the round before it on.
        after: Index of the round before it on its communicator, for the end of which it waits, -1 none.
        spread_s: Of each round of a collective that all members were in: its longest duration less its shortest.
        members: Members of each round among the events.
        iterations: How many each rank goes through.
        ranks: The rank behind each index.
    """

    rank: Ints
    what: Ints
    begin_ns: Ints
    op: Ints
    ops: Ops
    own_s: Floats
    iteration: Ints
    gap: Ints
    elements: Floats
    round: Ints
    needs: Ints
    lasted_s: Floats
    is_root: NDArray[np.bool_]
    first: Ints
    transfer_s: Floats
    shortest_s: Floats
    alone_s: Floats
    after: Ints
    spread_s: Floats
    members: Ints
    iterations: int
    ranks: Ints

    def spent(self, since: int = 0) -> Floats:
        """Seconds per iteration of each rank, (R, 3): own, transfer, waiting.

        Args:
            since: The first iteration that counts, from 0.
        """
        counts = self.iteration >= since
        blocks = self.what == BLOCK
        known = blocks & (self.round >= 0) & (self.needs > 0)
        transfer_s = np.where(blocks, self.lasted_s, 0.0)
        transfer_s[known] = np.minimum(transfer_s[known], self.transfer_s[self.round[known]])
        waiting_s = np.where(blocks, self.lasted_s, 0.0) - transfer_s
        columns = [
            np.bincount(self.rank, np.where(counts, column, 0.0), len(self.ranks))
            for column in (self.own_s, transfer_s, waiting_s)
        ]
        return np.stack(columns, axis=1) / (self.iterations - since)

    def since(self, number: int, last: int) -> int:
        """The place of the iteration with this number; the first one if it was before, and two are left at least.

        Args:
            number: Of an iteration, as the ranks count.
            last: The number of the last one here.
        """
        return int(np.clip(number - (last - self.iterations + 1), 0, max(0, self.iterations - 2)))

    def lost_in_collectives(self) -> tuple[float, float]:
        """Seconds per iteration, over all collectives: longest duration less shortest, and the shortest."""
        whole = np.isfinite(self.spread_s)
        waiting_s, transfer_s = self.spread_s[whole].sum(), self.transfer_s[whole].sum()
        return float(waiting_s) / self.iterations, float(transfer_s) / self.iterations

    def blocked_between(self, one: int, other: int) -> float:
        """Seconds per iteration for which one of two ranks, or the other, is blocked in rounds of both.

        Args:
            one: Index of a rank.
            other: Index of the other.
        """
        events = [slice(self.first[i], self.first[i + 1]) for i in (one, other)]
        both = np.intersect1d(*(self.round[mine][self.what[mine] == ISSUE] for mine in events))
        of_both = [(self.what[mine] == BLOCK) & np.isin(self.round[mine], both[both >= 0]) for mine in events]
        blocked_s = [self.lasted_s[mine][of].sum() for mine, of in zip(events, of_both, strict=True)]
        return float(max(blocked_s)) / self.iterations

    @property
    def recorded_s(self) -> float:
        """Seconds per iteration, but for the first one, by the clocks of the ranks; of a single one NaN."""
        if self.iterations < 2:
            return float("nan")
        ends_ns = self.begin_ns[self.what == END].reshape(len(self.ranks), self.iterations)
        return float(np.median(ends_ns[:, -1] - ends_ns[:, 0]) / (self.iterations - 1) / 1e9)

    def replay(self, own_s: Floats | None = None) -> float:
        """Seconds per iteration, but for the first one; NaN if the ranks would wait for each other for ever.

        Args:
            own_s: Other own times.
        """
        return self.pace(self.ends(own_s))

    def pace(self, ends_s: Floats, since: int = 0) -> float:
        """Seconds per iteration, but for the first one of all.

        Args:
            ends_s: When each iteration is over, from `ends`.
            since: The first iteration that counts, from 0.
        """
        if len(ends_s) < 2:
            return float(ends_s[-1])
        before = max(since, 1) - 1
        return float((ends_s[-1] - ends_s[before]) / (len(ends_s) - 1 - before))

    def ends(self, own_s: Floats | None = None) -> Floats:
        """When each iteration is over for all, in seconds; NaN if the ranks would wait for each other for ever.

        Args:
            own_s: Other own times.
        """
        return self.ends_of_each([self.own_s if own_s is None else own_s])[0]

    def ends_of_each(self, several: Iterable[Floats]) -> list[Floats]:
        """As `ends`, for several own times: which event follows which depends on none, so one pass does for all.

        Args:
            several: Other own times, each of all events.
        """
        at_once = max(1, MOST_AT_ONCE // max(1, len(self.own_s)))
        found: list[Floats] = []
        rest = iter(several)
        while some := list(islice(rest, at_once)):
            found += list(self._ends(np.stack(some, axis=1)).T)
        return found

    def moments(self, own_s: Floats | None = None) -> Floats:
        """When each event is over, in seconds, (events,); NaN of what the ranks would never come to.

        Args:
            own_s: Other own times.
        """
        found = np.full((len(self.own_s), 1), np.nan)
        self._ends((self.own_s if own_s is None else own_s)[:, None], found)
        return found[:, 0]

    def _ends(self, own_s: Floats, moments: Floats | None = None) -> Floats:
        """When each iteration is over, (iterations, K), with these own times, (events, K).

        Args:
            own_s: Of each event.
            moments: Filled with the time at which each event is over, (events, K).
        """
        ranks, rounds, columns = len(self.first) - 1, len(self.members), own_s.shape[1]
        column = np.arange(columns)
        at, end = self.first[:-1].copy(), self.first[1:]
        clock = np.zeros((ranks, columns))
        missing, entered = self.members.copy(), np.zeros((rounds, columns))
        over = np.zeros((rounds + 1, columns))  # when each round is; the last one stands for none
        has_root, rooted = np.zeros(rounds, np.bool_), np.zeros((rounds, columns))
        done = np.zeros((ranks, self.iterations, columns))
        seen = np.zeros(ranks, np.int64)
        live = np.flatnonzero(at < end)
        while len(live):
            event = at[live]
            time = clock[live] + own_s[event]
            what, of = self.what[event], self.round[event]
            go = what != BLOCK
            issues = np.flatnonzero((what == ISSUE) & (of >= 0))
            if len(issues):
                those = of[issues]
                cells = (those[:, None] * columns + column).reshape(-1)  # `at` is quick in one dimension only
                np.maximum.at(entered.reshape(-1), cells, time[issues].reshape(-1))
                np.subtract.at(missing, those, 1)
                whole = those[missing[those] == 0]
                over[whole] = np.maximum(entered[whole], over[self.after[whole]]) + self.alone_s[whole, None]
                roots = issues[self.is_root[event[issues]]]
                if len(roots):
                    has_root[of[roots]] = True
                    rooted[of[roots]] = time[roots]
            ends = np.flatnonzero(what == END)
            if len(ends):
                who = live[ends]
                done[who, seen[who]] = time[ends]
                seen[who] += 1
            blocks = np.flatnonzero(~go)
            if len(blocks):
                needs, those = self.needs[event[blocks]], of[blocks]
                go[blocks] = (needs == 0) | ((needs == 1) & (missing[those] == 0)) | ((needs == 2) & has_root[those])
                until = over[those]
                if (from_root := needs == 2).any():
                    until[from_root] = rooted[those[from_root]] + self.transfer_s[those[from_root], None]
                until = np.maximum(time[blocks], until)
                if (alone := needs == 0).any():
                    until[alone] = time[blocks[alone]] + self.lasted_s[event[blocks[alone]], None]
                time[blocks] = until
            if not go.any():
                return np.full((self.iterations, columns), np.nan)
            clock[live[go]] = time[go]
            if moments is not None:
                moments[event[go]] = time[go]
            at[live[go]] += 1
            live = live[at[live] < end[live]]
        return np.asarray(done.max(axis=0))


@dataclass(frozen=True)
class Repaired:
    """Iterations as they were, and as they would have been without what was slow.

    Attributes:
        now: As they were.
        then: The same events, with other own times or transfers.
        since: The first iteration in which something was slow, from 0.
        passes: Backward passes, rows of PASS, sorted by rank and begin.
        in_pipeline: Of each rank, whether its messages go to other stages of a pipeline, (R,).
        position: A number for each rank, equal for ranks in the same position, (R,).
    """

    now: Course
    then: Course
    since: int
    passes: np.ndarray[Any, Any]
    in_pipeline: NDArray[np.bool_]
    position: Ints

    @property
    def mended(self) -> list[int]:
        """Ranks that are quicker than they were, in order; none where only transfers are."""
        quicker = self.then.own_s < self.now.own_s
        return [int(rank) for rank in self.now.ranks[np.unique(self.now.rank[quicker])]]


def as_all_usually(course: Course, position: Ints) -> Floats:
    """Own times as if in each gap every rank took what its position takes in the middle, over all iterations.

    Args:
        course: What happened.
        position: A number for each rank, equal for ranks in the same position, (R,).
    """
    own_s = course.own_s.copy()
    place = position[course.rank] << 32 | course.gap << 2 | course.what
    order = np.argsort(place, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
        own_s[mine] = np.median(course.own_s[mine])
    return own_s


def as_its_peers(course: Course, who: Ints, peers: Ints) -> Floats:
    """Own times as if these ranks had been as quick as their peers usually are, gap by gap; never slower.

    Args:
        course: What happened.
        who: Indices of ranks.
        peers: Indices of ranks that issue the same operations, without those.
    """
    peers = peers[:: -(-len(peers) // MOST_PEERS)]
    ranks = np.concatenate((who, peers))
    row = np.full(len(course.ranks), -1, np.int64)
    row[ranks] = np.arange(len(ranks))
    mine = np.flatnonzero(row[course.rank] >= 0)
    gaps = int(course.gap[mine].max(initial=0)) + 1
    table = np.zeros((len(ranks), course.iterations, gaps))
    at = row[course.rank[mine]], course.iteration[mine], course.gap[mine]
    np.add.at(table, at, course.own_s[mine])
    usual = np.median(table[len(who) :], axis=0)
    ratio = np.divide(usual, table[: len(who)], out=np.ones_like(table[: len(who)]), where=table[: len(who)] > 0)
    ratio = np.minimum(ratio, 1.0)
    own_s = course.own_s.copy()
    changed = at[0] < len(who)
    own_s[mine[changed]] *= ratio[at[0][changed], at[1][changed], at[2][changed]]
    return own_s
