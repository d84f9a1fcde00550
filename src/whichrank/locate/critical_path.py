"""What if a rank had been quicker? Iterations are gone through again, with other times.

MegaTrace (section II.D) blames only what lies on the critical path, since bubbles absorb the rest. Here the graph is
what really happened: for each rank the operations that it issued and those it was blocked on, with its own time in
between; for each round who had to be there and how long the transfer took. Going through it with a rank's own times
replaced says how much sooner the iterations would have been over: nothing, if others were late anyway.

A round's transfer is the shortest duration over its members, which is that of the last to enter. Collectives of one
communicator share its connections and mostly end in the order of their issue, so one that stands in line for another
has as its time alone what is left when that has ended. One that overtakes the one before it waits for nobody. Times are
durations on one host each, so clocks need not agree: all ranks start at zero, and the first iteration, in which they
fall into step, does not count. All ranks go one event further at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.iterations import SPAN_NS, Floats, Ints, Ops, key_of
from whichrank.model.kinds import BARRIERS, FROM_ROOT, TO_ROOT, Kind, is_collective, is_message
from whichrank.model.signature import mix

ISSUE, BLOCK, END = 0, 1, 2
SHORTEST: Final = 0.05
"""The part of receives that is taken for pure transfer."""
MOST_PEERS: Final = 64
"""Of which the usual own times are taken."""
MOST_AT_ONCE: Final = 1 << 22
"""Own times of events that are gone through in one pass, at most."""
_FROM_ROOT: Final = tuple(FROM_ROOT)
_TO_ROOT: Final = tuple(TO_ROOT - BARRIERS)
"""A member of a monitored barrier waits for the root's answer too."""


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

    def _ends(self, own_s: Floats) -> Floats:
        """When each iteration is over, (iterations, K), with these own times, (events, K)."""
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
            at[live[go]] += 1
            live = live[at[live] < end[live]]
        return np.asarray(done.max(axis=0))


@dataclass(frozen=True)
class Whole:
    """Consecutive iterations.

    Attributes:
        ranks: In order, (R,).
        steps: Rows of STEP by rank, (R, iterations + 1).
        ops: The operations of these iterations.
    """

    ranks: Ints
    steps: np.ndarray[Any, Any]
    ops: Ops


def whole_iterations(parts: Sequence[Ops], steps: np.ndarray[Any, Any]) -> Whole | None:
    """Steps by rank, and the operations between them; None if there are no iterations, or no operations in them.

    Args:
        parts: Operations, in parts; others than those of these iterations are left out.
        steps: Rows of STEP, of each rank the same number, with consecutive counters; the first one opens.
    """
    ranks, count = np.unique(steps["rank"], return_counts=True)
    if not len(ranks) or count.min() < 2 or count.min() != count.max():
        return None
    steps = steps[np.lexsort((steps["counter"], steps["rank"]))].reshape(len(ranks), -1)
    ops = Ops.joined([part.those(_are_inside(part, ranks, steps["ordinal"])) for part in parts])
    return Whole(ranks, steps, ops) if len(ops) else None


def course_of(parts: Sequence[Ops], steps: np.ndarray[Any, Any], comm_size: Ints) -> Course | None:
    """The events of consecutive iterations.

    Args:
        parts: Operations, in parts; others than those of these iterations are left out.
        steps: Rows of STEP, of each rank the same number, with consecutive counters; the first one opens.
        comm_size: Members of each communicator.

    Returns:
        None if there are no iterations, or no operations in them.
    """
    whole = whole_iterations(parts, steps)
    if whole is None:
        return None
    ranks, steps, ops = whole.ranks, whole.steps, whole.ops
    at = np.searchsorted(ranks, ops["rank"])
    of, count_in = _rounds(ops)
    size = np.zeros(len(count_in), np.int64)
    size[of] = np.where(is_collective(ops["kind"]), comm_size[ops["comm"]], 2)
    is_whole = count_in == size
    # A future is seen to be ready a moment after the step that waited for it may have been counted: not of these steps.
    blocked = np.flatnonzero((ops["blocked_ns"] > 0) & (ops["end_ns"] - ops["blocked_ns"] < steps["at_ns"][at, -1]))
    lasted_s = np.maximum(ops["end_ns"] - ops["issue_ns"], 0) / 1e9
    transfer_s = np.full(len(count_in), np.inf)
    np.minimum.at(transfer_s, of, lasted_s)
    longest_s = np.full(len(count_in), -np.inf)
    collective = is_collective(ops["kind"]) & is_whole[of]
    np.maximum.at(longest_s, of[collective], lasted_s[collective])
    spread_s = np.where(np.isfinite(longest_s), longest_s - transfer_s, np.nan)
    after, since_s = _rounds_before(of, ops, len(count_in)), _since_the_one_before(ops)
    after[of[since_s < 0]] = -1
    alone_s = np.full(len(count_in), np.inf)
    np.minimum.at(alone_s, of, since_s)
    _shorten_messages(transfer_s, of, ops, lasted_s)
    alone_s = np.where(after >= 0, alone_s, transfer_s)
    ends = steps["at_ns"][:, 1:].reshape(-1)
    per_rank = steps.shape[1] - 1
    rank = np.concatenate((at, at[blocked], np.repeat(np.arange(len(ranks)), per_rank)))
    what = np.repeat((ISSUE, BLOCK, END), (len(at), len(blocked), len(ends)))
    op = np.concatenate((np.arange(len(at)), blocked, np.full(len(ends), -1)))
    issued_ns = np.minimum(ops["issue_ns"], steps["at_ns"][at, -1])
    # Nobody is blocked on what is not issued, though microseconds may be rounded up.
    blocked_ns = np.maximum(ops["end_ns"][blocked] - ops["blocked_ns"][blocked], issued_ns[blocked])
    begin = np.concatenate((issued_ns, blocked_ns, ends))
    finish = np.concatenate((issued_ns, ops["end_ns"][blocked], ends))
    order = np.lexsort((begin, rank))  # at one time in the order of `what`, in which they are already
    rank, what, op, begin, finish = rank[order], what[order], op[order], begin[order], finish[order]
    starts = np.append(True, np.diff(rank) != 0)
    opened = steps["at_ns"][:, 0]
    reached = np.maximum.accumulate(key_of(rank, finish - opened[rank])) - rank * SPAN_NS + opened[rank]
    before = np.where(starts, opened[rank], np.append(0, reached[:-1]))
    ended = np.cumsum(what == END) - (what == END)
    iteration = ended - per_rank * rank
    issued = np.cumsum(what == ISSUE) - (what == ISSUE)
    opens = np.append(True, what[:-1] == END)
    return Course(
        rank=rank,
        what=what,
        begin_ns=begin,
        op=op,
        ops=ops,
        own_s=np.maximum(begin - before, 0) / 1e9,
        iteration=iteration,
        gap=issued - np.maximum.accumulate(np.where(opens, issued, 0)),
        elements=np.where(what == ISSUE, ops["count"][op], 0).astype(np.float64),
        round=np.where(op >= 0, of[op], -1),
        needs=np.where(what == BLOCK, _needs(ops, is_whole[of])[op], 0),
        lasted_s=(finish - begin) / 1e9,
        is_root=(op >= 0) & (ops["peer"] == ops["rank"])[op],
        first=np.append(np.flatnonzero(starts), len(rank)),
        transfer_s=transfer_s,
        alone_s=alone_s,
        after=after,
        spread_s=spread_s,
        members=count_in,
        iterations=per_rank,
        ranks=ranks,
    )


def _are_inside(ops: Ops, ranks: Ints, steps: NDArray[Any]) -> NDArray[np.bool_]:
    """Which operations are of these ranks, and between their first and last step.

    Args:
        ops: Operations, (n,).
        ranks: Sorted, (R,).
        steps: For each step the number of the last operation before it, (R, steps).
    """
    at = np.searchsorted(ranks, ops["rank"])
    at[at == len(ranks)] = 0
    inside = (ranks[at] == ops["rank"]) & (ops["ordinal"] > steps[at, 0]) & (ops["ordinal"] <= steps[at, -1])
    return np.asarray(inside)


def _rounds_before(of: Ints, ops: Ops, rounds: int) -> Ints:
    """Of each round of a collective the one before it on the same communicator, -1 none."""
    collective = np.flatnonzero(is_collective(ops["kind"]))
    key, first = np.unique(_in_turn(ops)[collective], return_index=True)
    mine = of[collective[first]]
    after = np.full(rounds, -1, np.int64)
    follows = np.flatnonzero(np.diff(key) == 1)
    after[mine[follows + 1]] = mine[follows]
    return after


def _since_the_one_before(ops: Ops) -> Floats:
    """Seconds that each operation lasted since the rank's one before it on the same communicator had ended.

    Below zero if it ended before that one.
    """
    begun_ns, end_ns = ops["issue_ns"].copy(), ops["end_ns"].copy()
    collective = np.flatnonzero(is_collective(ops["kind"]))
    turn, rank = _in_turn(ops)[collective], ops["rank"][collective]
    order = np.lexsort((turn, rank))
    follows = np.flatnonzero((np.diff(rank[order]) == 0) & (np.diff(turn[order]) == 1))
    after, before = collective[order[follows + 1]], collective[order[follows]]
    begun_ns[after] = np.maximum(begun_ns[after], end_ns[before])
    return np.asarray((end_ns - begun_ns) / 1e9)


def _in_turn(ops: Ops) -> Ints:
    """A number for each collective, one higher for the next one of its communicator."""
    return np.asarray(ops["comm"].astype(np.int64) << 32 | ops["counter"])


def _shorten_messages(transfer_s: Floats, of: Ints, ops: Ops, lasted_s: Floats) -> None:
    """Transfers between two ranks: as short as the shortest receives of as much: their senders were early.

    The end of an asynchronous send is known only when it is waited for, so of one round neither side says how long the
    transfer took if the receiver was early.

    Args:
        transfer_s: Of each round, changed in place.
        of: The round of each operation.
        ops: The operations.
        lasted_s: Of each operation.
    """
    receives = np.flatnonzero(ops["kind"] == Kind.RECV)
    for elements in np.unique(ops["count"][receives]).tolist():
        mine = receives[ops["count"][receives] == elements]
        shortest_s = float(np.quantile(lasted_s[mine], SHORTEST, method="lower"))
        transfer_s[of[mine]] = np.minimum(transfer_s[of[mine]], shortest_s)


def _needs(ops: Ops, whole: NDArray[np.bool_]) -> Ints:
    """Whom each operation waits for: 0 nobody who is known, 1 all members, 2 the root."""
    kind, is_root = ops["kind"], ops["peer"] == ops["rank"]
    needs = np.where(np.isin(kind, _FROM_ROOT), np.where(is_root, 0, 2), 1)
    needs[np.isin(kind, _TO_ROOT) & ~is_root] = 0
    needs[~whole | (kind == Kind.RECV_ANY)] = 0
    return needs


def _rounds(ops: Ops) -> tuple[Ints, Ints]:
    """Index of each operation's round, and operations of each round."""
    is_send, is_recv = ops["kind"] == Kind.SEND, ops["kind"] == Kind.RECV
    source = np.where(is_send, ops["rank"], np.where(is_recv, ops["peer"], -1)).astype(np.int64) + 1
    target = np.where(is_send, ops["peer"], np.where(is_recv, ops["rank"], -1)).astype(np.int64) + 1
    key = mix(mix(mix(ops["comm"].astype(np.uint64) + np.uint64(1), source), target), ops["counter"])
    key = mix(key, _which_of_tags(key, ops))
    _, of, count = np.unique(key, return_inverse=True, return_counts=True)
    return of.reshape(-1).astype(np.int64), count.astype(np.int64)


def _which_of_tags(key: NDArray[np.uint64], ops: Ops) -> Ints:
    """Messages are counted by tag, which no record has: those of a rank with the same key, in the order of issue."""
    which = np.zeros(len(ops), np.int64)
    messages = np.flatnonzero(is_message(ops["kind"]))
    if not len(messages):
        return which
    key, rank, ordinal = key[messages], ops["rank"][messages], ops["ordinal"][messages]
    order = np.lexsort((ordinal, rank, key))
    first = np.append(True, (np.diff(key[order]) != 0) | (np.diff(rank[order]) != 0))
    place = np.arange(len(order))
    which[messages[order]] = place - np.maximum.accumulate(np.where(first, place, 0))
    return which


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
