"""In which part of an iteration a rank takes longer than it should: forward or backward, and of which microbatch.

A rank's own time lies between its operations. When its backward passes began and ended is noted by a sensor, so each
piece of own time is in one of them, before the last one of the iteration, which makes it part of a forward pass (or of
what comes before that: its data), or behind the last one: the optimizer. The microbatch is the number of backward
passes before it; of a forward pass in a pipeline the number of messages to the next stage, since these run ahead. What
a piece takes beyond the median of comparable ranks says where the rank is slow.

Implements the drill-down of MegaTrace, section III.C, without a schedule that one would have to be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from whichrank.locate.critical_path import END, ISSUE, Course
from whichrank.model.iterations import Floats, Ints
from whichrank.model.kinds import Kind

FORWARD, BACKWARD, OPTIMIZER = 0, 1, 2
NAMES: Final = ("forward", "backward", "optimizer")
"""Of phases, as incidents say them."""
MOSTLY: Final = 0.8
"""Share of the excess that must be in one phase, or in one microbatch of it, for it to be named."""
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


def slow_part(
    course: Course, index: int, peers: Ints, passes: np.ndarray[Any, Any], since: int, *, is_pipeline: bool
) -> SlowPart | None:
    """Where in its iterations a rank takes longer than comparable ones, or than it did before.

    Args:
        course: Some iterations.
        index: Of the rank.
        peers: Indices of comparable ranks that are not slow; if there are none it is held against its own past.
        passes: Rows of PASS.
        since: The first iteration in which it is slow, from 0.
        is_pipeline: Its messages go to other stages of a pipeline.

    Returns:
        None where it is not known.
    """
    mine = own_by_part(course, index, passes, is_pipeline=is_pipeline)
    if mine is None:
        return None
    others = [own_by_part(course, peer, passes, is_pipeline=is_pipeline) for peer in peers[:MOST_PEERS].tolist()]
    known = [np.median(part[since:], axis=0) for part in others if part is not None]
    if known:
        usual = np.median(_padded(known), axis=0)
    elif since >= 2:
        usual = np.median(mine[:since], axis=0)
    else:
        return None
    now = np.median(mine[since:], axis=0)
    both = _padded([now, usual])
    excess = both[0] - both[1]  # chance makes some parts longer and others shorter: their sum is near zero
    by_phase = np.maximum(excess.sum(axis=1), 0.0)
    total = float(by_phase.sum())
    if total <= 0:
        return None
    phase = int(by_phase.argmax())
    share = float(by_phase[phase]) / total
    if share < MOSTLY:
        return SlowPart(None, None, share)
    of_phase = excess[phase]
    batch = int(of_phase.argmax())
    is_one = phase != OPTIMIZER and (now[phase] > 0).sum() > 1 and of_phase[batch] >= MOSTLY * by_phase[phase]
    return SlowPart(NAMES[phase], batch if is_one else None, share)


def own_by_part(course: Course, index: int, passes: np.ndarray[Any, Any], *, is_pipeline: bool) -> Floats | None:
    """Seconds of a rank's own by iteration, phase and microbatch, (iterations, 3, M); None without backward passes.

    Args:
        course: Some iterations.
        index: Of the rank.
        passes: Rows of PASS.
        is_pipeline: Its messages go to other stages of a pipeline.
    """
    events = slice(int(course.first[index]), int(course.first[index + 1]))
    what, iteration, until = course.what[events], course.iteration[events], course.begin_ns[events]
    since = until - np.round(course.own_s[events] * 1e9).astype(np.int64)
    mine = np.sort(passes[passes["rank"] == course.ranks[index]], order="begin_ns")
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
    of = iteration[event]
    over, within = place // 2, place % 2 == 1  # passes that have begun before it and are over, and whether it is in one
    begun = np.searchsorted(
        cuts[1::2], until[what == END], side="right"
    )  # passes that are over by each iteration's end
    before = np.concatenate(([np.searchsorted(cuts[1::2], since[0], side="right")], begun[:-1]))
    number, count = over - before[of], (begun - before)[of]
    sent = _sent_ahead(course, events) if is_pipeline else np.zeros(len(until), np.int64)
    ahead = sent[event] if sent.any() else number
    phase = np.where(within, BACKWARD, np.where(number >= count, OPTIMIZER, FORWARD))
    batch = np.clip(np.where(within, number, np.where(phase == FORWARD, ahead, 0)), 0, MOST_MICROBATCHES - 1)
    batch = np.where(phase == FORWARD, np.minimum(batch, np.maximum(count - 1, 0)), batch)
    parts = np.zeros((course.iterations, len(NAMES), int(batch.max()) + 1))
    np.add.at(parts, (of, phase, batch), seconds)
    return parts


def _sent_ahead(course: Course, events: slice) -> Ints:
    """How many messages went to a later place of their communicator in the iteration before each event, (n,)."""
    ops, op = course.ops, course.op[events]
    is_send = (course.what[events] == ISSUE) & (op >= 0) & (ops["kind"][op] == Kind.SEND)
    place, offset = ops["stage"][op].astype(np.int64), ops["offset"][op].astype(np.int64)
    # Of two members the offset says nothing: the first one sends to a later place. Round a larger one the last member
    # sends to the first, with as small an offset, what is a step ahead in a pipeline that goes round several times.
    ahead = is_send & np.where(offset > 0, offset == 1, place == 1)
    sent = np.cumsum(ahead) - ahead
    iteration = course.iteration[events]
    starts = np.flatnonzero(np.append(True, np.diff(iteration) != 0))
    counted: Ints = sent - np.repeat(sent[starts], np.diff(np.append(starts, len(sent))))
    return counted


def _padded(parts: list[Floats]) -> Floats:
    """Of shapes (3, M) with M of their own: stacked, with zeros behind."""
    most = max(part.shape[1] for part in parts)
    return np.stack([np.pad(part, ((0, 0), (0, most - part.shape[1]))) for part in parts])
