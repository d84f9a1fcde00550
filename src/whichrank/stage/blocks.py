"""The trace graph of an iteration as it really went: blocks of own time, what ranks waited for, what decided the end.

`graph` is told the schedule and has one vertex for each block of it. Here there is no schedule: the vertices are the
events of the records (`locate.critical_path`), which hold for whatever order the program has, and a block is own time
of one rank that lies in one backward pass, or before it, or behind the last one. Gone through with other times, the
same events show how the iteration would have been without what was slow.

The critical path is walked from the end: what ends last was computed by that rank, or waited for the last one that
entered a round, and so on. What lies on it puts the iteration off, by as much as it is longer; all else has slack.

Example: stage 0 computes 1 s, sends, and waits 4 s for stage 1, which computes 3 s. The path is 1 s of stage 0, the
transfer, and 3 s of stage 1; the wait of stage 0 is a bubble.

Source: MegaTrace, section III.C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

import numpy as np

from whichrank.locate.critical_path import BLOCK, END, ISSUE, Course, Repaired
from whichrank.locate.phases import BACKWARD, FORWARD, OPTIMIZER, pieces_of
from whichrank.locate.pipeline_order import order_of
from whichrank.model.iterations import Bools, Floats, Ints

ROUNDING_S: Final = 1e-9
"""Below which nobody has waited."""


class What(IntEnum):
    """What a rank did in a block."""

    FORWARD = FORWARD
    """In a forward pass, or what comes before it: its data."""
    BACKWARD = BACKWARD
    OPTIMIZER = OPTIMIZER
    """Behind the last backward pass."""
    OWN = 3
    """Something of its own, where no backward passes are known."""
    TRANSFER = 4
    """Data were under way."""
    WAITING = 5
    """Others had not come yet: a bubble."""


@dataclass(frozen=True)
class Blocks:
    """One iteration, block by block; sorted by rank and time, (n,) each.

    Attributes:
        rank: Global rank.
        what: Values of `What`.
        microbatch: From 0; -1 of none, or where it is not known.
        since_s: When it begins, in seconds since the first rank began the iteration.
        until_s: When it ends.
        is_critical: It is on the critical path.
        lasts_s: Until the last rank ends it, one number.
        iteration_s: From when the last rank ended the iteration before until the last one ends this: what it takes.
        number: Place of the iteration among those that were gone through, from 0.
        mended: Ranks that are quicker than they were; none as it was, or where only transfers are.
    """

    rank: Ints
    what: Ints
    microbatch: Ints
    since_s: Floats
    until_s: Floats
    is_critical: Bools
    lasts_s: float
    iteration_s: float
    number: int
    mended: tuple[int, ...] = ()


def before_and_after(repaired: Repaired, ranks: Ints) -> tuple[Blocks, Blocks] | None:
    """A usual iteration as it was, and as it would have been; None where that cannot be gone through.

    Args:
        repaired: Iterations.
        ranks: Of which ranks blocks are made.
    """
    now_s, then_s = repaired.now.moments(), repaired.then.moments()
    if np.isnan(now_s).any() or np.isnan(then_s).any():
        return None
    number = _usual(repaired, now_s, then_s)
    indices = np.flatnonzero(np.isin(repaired.now.ranks, ranks))
    if not len(indices):
        return None
    mended = tuple(repaired.mended)
    before, after = (
        _blocks(repaired, course, moments_s, number, indices)
        for course, moments_s in ((repaired.now, now_s), (repaired.then, then_s))
    )
    return before, replace(after, mended=mended)


def critical_path(course: Course, moments_s: Floats, number: int) -> Ints:
    """Events that decide when an iteration is over, the first one first: own time before each is on the path.

    Args:
        course: Some iterations.
        moments_s: When each event is over, from `Course.moments`.
        number: Of the iteration, from 0.
    """
    before_s, last_in = _before(course, moments_s), _last_to_enter(course, moments_s)
    ends = np.flatnonzero((course.what == END) & (course.iteration == number))
    at, path = int(ends[moments_s[ends].argmax()]), list[int]()
    while at >= 0 and course.iteration[at] == number:
        waited_s = moments_s[at] - before_s[at] - course.own_s[at]
        if course.what[at] == BLOCK and course.needs[at] > 0 and waited_s > ROUNDING_S:
            at = _decided_by(course, at, moments_s, last_in)
            continue
        path.append(at)
        at = at - 1 if at > course.first[course.rank[at]] else -1
    return np.array(path[::-1], np.int64)


def _usual(repaired: Repaired, now_s: Floats, then_s: Floats) -> int:
    """The iteration that is nearest to the middle of all that count, as it was and as it would have been.

    The first one of all counts if there is no other. An iteration that is usual as it was may be the longest one
    without what is slow, and would say that fixing it buys less than it does.
    """
    iterations = repaired.now.iterations
    count = np.arange(min(max(repaired.since, 1), iterations - 1), iterations)
    off = np.zeros(len(count))
    for course, moments_s in ((repaired.now, now_s), (repaired.then, then_s)):
        lasted_s = _lasted_s(course, moments_s)[count]
        off += np.abs(lasted_s / np.median(lasted_s) - 1.0)
    return int(count[off.argmin()])


def _lasted_s(course: Course, moments_s: Floats) -> Floats:
    """Of each iteration, from when the last rank has ended the one before."""
    at = np.flatnonzero(course.what == END)
    over_s = np.full(course.iterations, -np.inf)
    np.maximum.at(over_s, course.iteration[at], moments_s[at])
    return np.diff(over_s, prepend=0.0)


def _before(course: Course, moments_s: Floats) -> Floats:
    """When the event before each was over on its rank; 0 of the first one."""
    before_s = np.append(0.0, moments_s[:-1])
    before_s[course.first[:-1]] = 0.0
    return before_s


def _last_to_enter(course: Course, moments_s: Floats) -> Ints:
    """Of each round the event in which the last member issues it, -1 none; of one with a root that of the root."""
    issues = np.flatnonzero((course.what == ISSUE) & (course.round >= 0))
    issues = issues[np.argsort(moments_s[issues], kind="stable")]
    found = np.full(len(course.members), -1, np.int64)
    found[course.round[issues]] = issues  # of several the last one stays
    return found


def _decided_by(course: Course, at: int, moments_s: Floats, last_in: Ints) -> int:
    """The event that the end of a wait goes back to."""
    of, until_s = int(course.round[at]), float(moments_s[at])
    if course.needs[at] == 2:
        rooted = np.flatnonzero((course.round == of) & (course.what == ISSUE) & course.is_root)
        return int(rooted[0]) if len(rooted) else int(last_in[of])
    while course.after[of] >= 0:
        until_s -= float(course.alone_s[of])
        if moments_s[last_in[of]] >= until_s - ROUNDING_S:
            break
        of = int(course.after[of])
    return int(last_in[of])


def _blocks(repaired: Repaired, course: Course, moments_s: Floats, number: int, indices: Ints) -> Blocks:
    before_s, on_path = _before(course, moments_s), np.zeros(len(moments_s), np.bool_)
    on_path[critical_path(course, moments_s, number)] = True
    parts = []
    for index in indices.tolist():
        events = np.arange(course.first[index], course.first[index + 1])
        events = events[course.iteration[events] == number]
        parts.append(_of_rank(repaired, course, index, events, before_s, moments_s))
    rank, what, batch, since_s, until_s, event = (np.concatenate(column) for column in zip(*parts, strict=True))
    is_end = course.what == END
    opened_s = moments_s[is_end & (course.iteration == number - 1)] if number else np.zeros(1)
    zero_s = float(opened_s.min())
    ended_s = float(moments_s[is_end & (course.iteration == number)].max())
    is_critical = on_path[event] & (what < What.TRANSFER)
    return Blocks(
        rank, what, batch, since_s - zero_s, until_s - zero_s, is_critical, ended_s - zero_s,
        ended_s - float(opened_s.max()), number,
    )  # fmt: skip


def _of_rank(
    repaired: Repaired, course: Course, index: int, events: Ints, before_s: Floats, moments_s: Floats
) -> tuple[Ints, Ints, Ints, Floats, Floats, Ints]:
    """Blocks of one rank: columns of `Blocks`, and of each the event that it belongs to."""
    event, seconds, what, batch = _own(repaired, index, events)
    measured_s = repaired.now.own_s[event]
    seconds = seconds * np.divide(course.own_s[event], measured_s, out=np.ones_like(measured_s), where=measured_s > 0)
    so_far_s = np.cumsum(seconds) - seconds
    starts = np.flatnonzero(np.append(True, np.diff(event) != 0))
    in_event_s = so_far_s - np.repeat(so_far_s[starts], np.diff(np.append(starts, len(event))))
    own_since_s = before_s[event] + in_event_s
    blocked = events[course.what[events] == BLOCK]
    waits_from_s = before_s[blocked] + course.own_s[blocked]
    blocked_s = np.maximum(moments_s[blocked] - waits_from_s, 0.0)
    known = (course.needs[blocked] > 0) & (course.round[blocked] >= 0)
    transfer_s = np.where(known, np.minimum(blocked_s, course.alone_s[course.round[blocked]]), blocked_s)
    arrives_s = moments_s[blocked] - transfer_s
    whats = np.concatenate((what, np.full(len(blocked), What.WAITING), np.full(len(blocked), What.TRANSFER)))
    batches = np.concatenate((batch, np.full(2 * len(blocked), -1)))
    since_s = np.concatenate((own_since_s, waits_from_s, arrives_s))
    until_s = np.concatenate((own_since_s + seconds, arrives_s, moments_s[blocked]))
    of = np.concatenate((event, blocked, blocked))
    order = np.argsort(since_s, kind="stable")
    order = order[(until_s - since_s)[order] > ROUNDING_S]
    rank = np.full(len(order), course.ranks[index], np.int64)
    return rank, whats[order], batches[order], since_s[order], until_s[order], of[order]


def _own(repaired: Repaired, index: int, events: Ints) -> tuple[Ints, Floats, Ints, Ints]:
    """Own time of one rank in pieces, as it was: the event that ends it, seconds, what it was, and the microbatch."""
    course, in_pipeline = repaired.now, bool(repaired.in_pipeline[index])
    pieces = pieces_of(course, index, repaired.passes, is_pipeline=in_pipeline)
    if pieces is None:
        return events, course.own_s[events], np.full(len(events), What.OWN, np.int64), np.full(len(events), -1)
    has_numbers = bool(pieces.passes.max(initial=0) > 1)
    if pieces.sent is not None and pieces.sent.goes_round:
        count = int(np.bincount(pieces.passes).argmax())
        order = order_of(course, index, repaired.passes, count) if count else None
        has_numbers = order is not None
        pieces = pieces_of(course, index, repaired.passes, is_pipeline=in_pipeline, order=order) or pieces
    mine = np.isin(pieces.event, events)
    event, seconds, what = pieces.event[mine], pieces.seconds[mine], pieces.phase[mine]
    return event, seconds, what, np.where(has_numbers & (what != What.OPTIMIZER), pieces.microbatch[mine], -1)
