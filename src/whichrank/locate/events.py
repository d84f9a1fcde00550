"""Of operations and optimizer steps the events of iterations, which `critical_path` goes through again.

A round's transfer is the shortest duration over its members, which is that of the last to enter. Collectives of one
communicator share its connections and mostly end in the order of their issue, so one that stands in line for another
has as its time alone what is left when that has ended. One that overtakes the one before it waits for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.locate.critical_path import BLOCK, END, ISSUE, Course
from whichrank.model.iterations import SPAN_NS, Floats, Ints, Ops, key_of
from whichrank.model.kinds import BARRIERS, FROM_ROOT, TO_ROOT, Kind, is_collective, is_message
from whichrank.model.signature import mix

SHORTEST: Final = 0.05
"""The part of receives that is taken for pure transfer."""
_FROM_ROOT: Final = tuple(FROM_ROOT)
_TO_ROOT: Final = tuple(TO_ROOT - BARRIERS)
"""A member of a monitored barrier waits for the root's answer too."""


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
    shortest_s = transfer_s.copy()
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
    # At one time in the order of `what`, in which they are already, but for what was issued behind the step.
    behind = _steps_before(ops, at, steps["ordinal"])
    of_step = np.tile(np.arange(per_rank), len(ranks))
    order = np.lexsort((np.concatenate((behind, behind[blocked], of_step)), begin, rank))
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
        shortest_s=shortest_s,
        alone_s=alone_s,
        after=after,
        spread_s=spread_s,
        members=count_in,
        iterations=per_rank,
        ranks=ranks,
    )


def _steps_before(ops: Ops, at: Ints, step_ordinals: NDArray[Any]) -> Ints:
    """How many steps, but for the first one, each operation was issued behind, (n,).

    Args:
        ops: Operations.
        at: Index of the rank of each.
        step_ordinals: Of each step the number of the last operation before it, (R, steps).
    """
    rows = np.arange(len(step_ordinals))[:, None] << 32
    keys = (rows | step_ordinals[:, 1:].astype(np.int64)).reshape(-1)
    found = np.searchsorted(keys, at << 32 | ops["ordinal"].astype(np.int64))
    return np.asarray(found - at * (step_ordinals.shape[1] - 1))


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
