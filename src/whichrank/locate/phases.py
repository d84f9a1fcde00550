"""In which part of an iteration a rank takes longer than it should: forward or backward, and of which microbatch.

A rank's own time lies between its operations. When its backward passes began and ended is noted by a sensor, so each
piece of own time is in one of them, before the last one of the iteration, which makes it part of a forward pass (or of
what comes before that: its data), or behind the last one: the optimizer. The microbatch is the number of backward
passes before it; of a forward pass in a pipeline the number of messages to the next stage, since these run ahead. What
a piece takes beyond the median of comparable ranks says where the rank is slow.

Example: a rank takes 30 ms longer than its peers, 29 of them in the backward pass of its third microbatch of eight:
backward, microbatch 2.

A wrong stage misleads, so nothing is said unless iterations end with an optimizer step, have equally many passes, and
what is longer here is at least half of the rank's excess. Passes that torch does not see (the halves of a zero-bubble
schedule) show by a rank that sends more messages to a neighbour than it has passes. Where a pipeline goes round several
times, a pass is that of a microbatch through one of several stages: then a microbatch is said only where the order of
messages and passes proves the schedule.

Implements the drill-down of MegaTrace, section III.C, without a schedule that one would have to be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.locate.critical_path import END, Course
from whichrank.locate.interleaving import Order
from whichrank.locate.pipeline_order import Sent, order_of, signs_of, so_far
from whichrank.model.iterations import Floats, Ints

FORWARD, BACKWARD, OPTIMIZER = 0, 1, 2
NAMES: Final = ("forward", "backward", "optimizer")
"""Of phases, as incidents say them."""
MOSTLY: Final = 0.8
"""Share of the excess that must be in one phase, or in one microbatch of it, for it to be named."""
ENOUGH: Final = 0.5
"""Share of what a rank takes longer in all that must be seen here: of less it may be chance where it lies."""
LEAST_FORWARD: Final = 0.05
"""Times as long as a backward pass lies between it and the next one, for both to be of microbatches of their own: of
several losses one goes backward right after the other."""
LEAST_ITERATIONS: Final = 2
"""In which as many passes are known as usual."""
MOST_PEERS: Final = 8
"""That are looked at: each is gone through event by event."""
MOST_MICROBATCHES: Final = 1 << 10
"""Of an iteration; what is behind counts as the last one."""


@dataclass(frozen=True)
class SlowPart:
    """Where a rank is slow.

    Attributes:
        phase: A name of NAMES; None: in no single one.
        microbatch: From 0; None: in no single one, or there is one only.
        share: Of the excess that is in the phase.
    """

    phase: str | None
    microbatch: int | None
    share: float


@dataclass(frozen=True)
class Own:
    """Own time of a rank.

    Attributes:
        seconds: By iteration, phase and microbatch, (iterations, 3, M).
        passes: Backward passes of each iteration, (iterations,).
        sent: Messages to the next and to the previous stage in each, (iterations, 2); all 0 of no pipeline.
        goes_round: Messages go from the last stage to the first one.
        fits: Which iterations are in the order that is given; all where none is, (iterations,).
    """

    seconds: Floats
    passes: Ints
    sent: Ints
    goes_round: bool
    fits: NDArray[np.bool_]


def slow_part(
    course: Course,
    index: int,
    peers: Ints,
    passes: np.ndarray[Any, Any],
    since: int,
    excess_s: float,
    *,
    is_pipeline: bool,
    comes_and_goes: bool = False,
) -> SlowPart | None:
    """Where in its iterations a rank takes longer than comparable ones, or than it did before.

    Args:
        course: Some iterations, each of which an optimizer step ends.
        index: Of the rank.
        peers: Indices of comparable ranks that are not slow; if there are none it is held against its own past.
        passes: Rows of PASS, sorted by rank and begin.
        since: The first iteration in which it is slow, from 0.
        excess_s: What it takes longer per iteration.
        is_pipeline: Its messages go to other stages of a pipeline.
        comes_and_goes: It is as usual in most iterations, so the mean counts.

    Returns:
        None where it is not known.
    """
    mine = own_by_part(course, index, passes, is_pipeline=is_pipeline)
    if mine is None:
        return None
    usual_count = int(np.bincount(mine.passes[mine.passes > 0]).argmax())
    whole = mine.passes == usual_count
    between_two = _goes_round_between_two(mine, whole)
    if whole[since:].sum() < LEAST_ITERATIONS or not (_has_all_passes(mine, whole) or between_two):
        return None
    goes_round = mine.goes_round or between_two
    order = order_of(course, index, passes, usual_count) if goes_round else None
    if order is not None:
        in_order = own_by_part(course, index, passes, is_pipeline=True, order=order)
        if in_order is not None and (whole & in_order.fits)[since:].sum() >= LEAST_ITERATIONS:
            mine, whole = in_order, whole & in_order.fits
        else:
            order = None
    middle = np.mean if comes_and_goes else np.median
    others = [
        own_by_part(course, peer, passes, is_pipeline=is_pipeline, order=order) for peer in peers[:MOST_PEERS].tolist()
    ]
    known = [
        middle(one.seconds[since:][both], axis=0)
        for one in others
        if one is not None
        and (both := (whole & one.fits & (one.passes == usual_count))[since:]).sum() >= LEAST_ITERATIONS
    ]
    if known:
        usual = np.median(_padded(known), axis=0)
    elif len(peers) == 0 and whole[:since].sum() >= LEAST_ITERATIONS:
        usual = np.median(mine.seconds[:since][whole[:since]], axis=0)
    else:
        return None
    both_s = _padded([middle(mine.seconds[since:][whole[since:]], axis=0), usual])
    excess = both_s[0] - both_s[1]  # chance makes some parts longer and others shorter: their sum is near zero
    by_phase = np.maximum(excess.sum(axis=1), 0.0)
    total = float(by_phase.sum())
    if total <= 0 or total < ENOUGH * excess_s:
        return None
    phase = int(by_phase.argmax())
    share = float(by_phase[phase]) / total
    if share < MOSTLY:
        return SlowPart(None, None, share)
    batch = int(excess[phase].argmax())
    has_numbers = phase != OPTIMIZER and usual_count > 1 and (order is not None or not goes_round)
    has_numbers &= is_pipeline or _are_apart(both_s[1], usual_count)
    is_one = has_numbers and (both_s[0][phase] > 0).sum() > 1 and excess[phase][batch] >= MOSTLY * by_phase[phase]
    return SlowPart(NAMES[phase], batch if is_one else None, share)


def _are_apart(usual_s: Floats, passes: int) -> bool:
    """Whether a forward pass lies between any two backward passes that follow each other.

    Args:
        usual_s: By phase and microbatch, (3, M).
        passes: Backward passes of an iteration.
    """
    backward_s, forward_s = usual_s[BACKWARD, : passes - 1], usual_s[FORWARD, 1:passes]
    return bool((forward_s >= LEAST_FORWARD * backward_s[: len(forward_s)]).all())


def _has_all_passes(own: Own, whole: NDArray[np.bool_]) -> bool:
    """Whether each message to a neighbour stands for a pass that was noted, in these iterations.

    Where a pipeline goes round several times, the last of a rank's stages sends nothing ahead.
    """
    most = own.sent[whole].max(axis=1)
    return bool(((most == 0) | (most == own.passes[whole])).all())


def _goes_round_between_two(own: Own, whole: NDArray[np.bool_]) -> bool:
    """Whether two ranks hold several stages each, by their messages, all of which go to the same neighbour.

    Of v stages with M microbatches each a rank has v * M passes. All its stages but one exchange a message with the
    other rank in both directions, and one in one direction only: that makes (2 * v - 1) * M.
    """
    passes, sent = own.passes[whole], own.sent[whole].sum(axis=1)
    batches = 2 * passes - sent
    fits = (batches > 0) & (own.sent[whole].min(axis=1) == 0)
    each = passes[fits] // batches[fits]
    return bool(fits.all() and ((each > 1) & (each * batches[fits] == passes[fits])).all())


@dataclass(frozen=True)
class Pieces:
    """Own time of a rank, cut where a backward pass begins or ends; in order, (n,) each.

    Attributes:
        event: Of the rank, in the order of the course, which ends the own time that a piece is part of.
        seconds: How long it lasts.
        phase: FORWARD, BACKWARD or OPTIMIZER.
        microbatch: From 0.
        passes: Backward passes of each iteration, (iterations,).
        sent: Messages along its pipeline; None of a rank that has none.
    """

    event: Ints
    seconds: Floats
    phase: Ints
    microbatch: Ints
    passes: Ints
    sent: Sent | None


def own_by_part(
    course: Course, index: int, passes: np.ndarray[Any, Any], *, is_pipeline: bool, order: Order | None = None
) -> Own | None:
    """What a rank takes of its own in which part; None without backward passes.

    Args:
        course: Some iterations.
        index: Of the rank.
        passes: Rows of PASS, sorted by rank and begin.
        is_pipeline: Its messages go to other stages of a pipeline.
        order: In which a rank that holds several stages goes through its microbatches, which are then told apart.
    """
    pieces = pieces_of(course, index, passes, is_pipeline=is_pipeline, order=order)
    if pieces is None:
        return None
    parts = np.zeros((course.iterations, len(NAMES), int(pieces.microbatch.max()) + 1))
    np.add.at(parts, (course.iteration[pieces.event], pieces.phase, pieces.microbatch), pieces.seconds)
    each = pieces.sent.each if pieces.sent else np.zeros((course.iterations, 2), np.int64)
    fits = signs_of(course, index, passes) == order.sign if order else np.ones(course.iterations, np.bool_)
    return Own(parts, pieces.passes, each, pieces.sent is not None and pieces.sent.goes_round, fits)


def pieces_of(
    course: Course, index: int, passes: np.ndarray[Any, Any], *, is_pipeline: bool, order: Order | None = None
) -> Pieces | None:
    """A rank's own time in pieces, each in one phase and of one microbatch; arguments as in `own_by_part`."""
    events = slice(int(course.first[index]), int(course.first[index + 1]))
    what, iteration, until = course.what[events], course.iteration[events], course.begin_ns[events]
    since = until - np.round(course.own_s[events] * 1e9).astype(np.int64)
    first, last = np.searchsorted(passes["rank"], course.ranks[index] + np.arange(2))
    mine = passes[first:last]
    mine = mine[(mine["end_ns"] > since[0]) & (mine["begin_ns"] < until[-1])]
    if not len(mine):
        return None
    # Own time is cut where a pass begins or ends: of the pieces between the cuts every other one is in a pass.
    cuts = np.maximum.accumulate(np.stack((mine["begin_ns"], mine["end_ns"]), axis=1).reshape(-1))
    first, last = np.searchsorted(cuts, since, side="right"), np.searchsorted(cuts, until, side="left")
    pieces = np.maximum(last - first, 0) + 1
    event = np.repeat(np.arange(len(until)), pieces)
    place = first[event] + np.arange(len(event)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = np.maximum(since[event], np.concatenate(([since[0]], cuts))[place])
    end = np.minimum(until[event], np.concatenate((cuts, [until[-1]]))[place])
    seconds = np.maximum(end - begin, 0) / 1e9
    # How many passes are over before a piece, and whether it is in one.
    over, within = place // 2, place % 2 == 1
    ends = cuts[1::2]
    by_end = np.searchsorted(ends, until[what == END], side="right")
    before = np.concatenate(([np.searchsorted(ends, since[0], side="right")], by_end[:-1]))
    of, counts = iteration[event], by_end - before
    number, count = over - before[of], counts[of]
    sent = Sent.by(course, index) if is_pipeline else None
    backward_batch = forward_batch = number
    if sent and order:
        so_many = so_far(course, index, sent.is_ahead | sent.is_back)[event] + number + within
        backward_batch = np.array(order.of_backward)[np.minimum(number, len(order.of_backward) - 1)]
        forward_batch = np.array(order.of_forward)[np.minimum(so_many, len(order.of_forward) - 1)]
    elif sent and sent.is_ahead.any():
        forward_batch = so_far(course, index, sent.is_ahead)[event]
    phase = np.where(within, BACKWARD, np.where(number >= count, OPTIMIZER, FORWARD))
    batch = np.where(within, backward_batch, np.where(phase == FORWARD, forward_batch, 0))
    batch = np.clip(batch, 0, MOST_MICROBATCHES - 1)
    batch = np.where(phase == FORWARD, np.minimum(batch, np.maximum(count - 1, 0)), batch)
    return Pieces(event + events.start, seconds, phase, batch, counts, sent)


def _padded(parts: list[Floats]) -> Floats:
    """Of shapes (3, M) with M of their own: stacked, with zeros behind."""
    most = max(part.shape[1] for part in parts)
    return np.stack([np.pad(part, ((0, 0), (0, most - part.shape[1]))) for part in parts])
