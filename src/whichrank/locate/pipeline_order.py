"""In which order ranks of a pipeline sent messages and went backward, in iterations that are gone through again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.locate.critical_path import END, ISSUE, Course
from whichrank.locate.interleaving import Event, Order, interleavings, to_compare, weights
from whichrank.model.iterations import Ints
from whichrank.model.kinds import Kind


@dataclass(frozen=True)
class Sent:
    """Messages of a rank to its neighbours in a pipeline.

    Attributes:
        is_ahead: Of each event of the rank, whether it sends one to the next stage, (n,).
        is_back: Whether it sends one to the previous stage, (n,).
        each: Of each iteration how many went to the next and to the previous one, (iterations, 2).
        goes_round: Some go from the last stage to the first.
    """

    is_ahead: NDArray[np.bool_]
    is_back: NDArray[np.bool_]
    each: Ints
    goes_round: bool

    @classmethod
    def by(cls, course: Course, index: int) -> Sent:
        """Messages of the rank with this index."""
        events = _events_of(course, index)
        ops, op, iteration = course.ops, course.op[events], course.iteration[events]
        is_send = (course.what[events] == ISSUE) & (op >= 0) & (ops["kind"][op] == Kind.SEND)
        place, offset = ops["stage"][op].astype(np.int64), ops["offset"][op].astype(np.int64)
        # Of two members the offset says nothing: the first one sends to a later place.
        ahead = is_send & np.where(offset > 0, offset == 1, place == 1)
        each = [np.bincount(iteration[which], minlength=course.iterations) for which in (ahead, is_send & ~ahead)]
        mine = np.unique(ops["comm"][op[is_send]])
        theirs = np.isin(ops["comm"], mine) & (ops["kind"] == Kind.SEND)
        last = ops["stage"][theirs].max(initial=0)
        goes_round = bool((theirs & (ops["stage"] == last) & (ops["offset"] == 1)).any())
        return cls(ahead, is_send & ~ahead, np.stack(each, axis=1), goes_round)


def so_far(course: Course, index: int, which: NDArray[np.bool_]) -> Ints:
    """How many of these events of a rank there were in its iteration before each of its events, (n,)."""
    iteration = course.iteration[_events_of(course, index)]
    count: Ints = np.cumsum(which) - which
    starts = np.flatnonzero(np.append(True, np.diff(iteration) != 0))
    return np.asarray(count - np.repeat(count[starts], np.diff(np.append(starts, len(count)))))


def signs_of(course: Course, index: int, passes: np.ndarray[Any, Any]) -> Ints:
    """The sign of each iteration of a rank, of the order in which it sends messages and begins passes, (iterations,).

    Args:
        course: Some iterations.
        index: Of the rank.
        passes: Rows of PASS, sorted by rank and begin.
    """
    events = _events_of(course, index)
    sent, at_ns, iteration = Sent.by(course, index), course.begin_ns[events], course.iteration[events]
    ends_ns = at_ns[course.what[events] == END]
    first, last = np.searchsorted(passes["rank"], course.ranks[index] + np.arange(2))
    begins_ns = passes["begin_ns"][first:last]
    of_begin = np.searchsorted(ends_ns, begins_ns)
    inside = (begins_ns > at_ns[0] - round(float(course.own_s[events][0]) * 1e9)) & (of_begin < course.iterations)
    parts = [
        (at_ns[sent.is_ahead], iteration[sent.is_ahead], Event.AHEAD),
        (at_ns[sent.is_back], iteration[sent.is_back], Event.BACK),
        (begins_ns[inside], of_begin[inside], Event.BEGIN),
    ]
    event = np.concatenate([np.full(len(times), int(event)) for times, _, event in parts])
    times, of = (np.concatenate([part[column] for part in parts]) for column in range(2))
    order = np.lexsort((event, times, of))  # what is sent at the time of a begin was made before
    event, of = event[order], of[order]
    starts = np.searchsorted(of, np.arange(course.iterations))
    signs = np.zeros(course.iterations, np.int64)
    np.add.at(signs, of, weights(np.arange(len(of)) - starts[of], event))
    return signs


def order_of(course: Course, index: int, passes: np.ndarray[Any, Any], count: int) -> Order | None:
    """What a rank of an interleaved pipeline does in an iteration; None where it does not follow from what fits.

    Args:
        course: Some iterations.
        index: Of the rank.
        passes: Rows of PASS, sorted by rank and begin.
        count: Backward passes of a usual iteration.
    """
    ops, op = course.ops, course.op[_events_of(course, index)]
    is_message = np.isin(ops["kind"], (Kind.SEND, Kind.RECV))
    mine = op[(op >= 0) & is_message[op]]
    comms = np.unique(ops["comm"][mine])
    if len(comms) != 1:
        return None
    theirs = np.flatnonzero((ops["comm"] == comms[0]) & is_message)
    stages, first = np.unique(ops["stage"][theirs], return_index=True)
    ranks, place = len(stages), int(ops["stage"][mine[0]]) - 1
    if stages.tolist() != list(range(1, ranks + 1)):
        return None
    members = np.searchsorted(course.ranks, ops["rank"][theirs[first]])
    signs = {at: set(signs_of(course, int(members[at]), passes).tolist()) for at in to_compare(place, ranks)}
    orders = [one.order(place) for one in interleavings(ranks, count, signs)]
    return orders[0] if len({(order.of_forward, order.of_backward) for order in orders}) == 1 else None


def _events_of(course: Course, index: int) -> slice:
    return slice(int(course.first[index]), int(course.first[index + 1]))
