"""How much of an iteration is lost to each rank, node, pipeline stage and communicator: what fixing it would buy.

Fixed is what takes as long as it usually does: in each gap between operations the ranks in question take no longer than
the middle of all that do the same work (of two the quicker one, in the middle of all iterations); a pipeline stage as a
whole takes no longer than the middle of all stages, and the transfers of a communicator no longer than those of the
middle one that moves the same. Iterations are gone through again with that, see
`locate.critical_path`. What a bubble absorbs buys nothing, and what others hold up as well buys nothing alone.

A faulty rank buys nearly as much as its node, and as all ranks together. Where all together buy much and no rank does,
the work is uneven, or goes from rank to rank; where a stage does and none of its ranks, the model is cut unevenly.

Source: "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025), section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from whichrank.locate.comparable import longer_than_alike, what_is_moved
from whichrank.locate.critical_path import ISSUE, Course
from whichrank.model.iterations import Floats, Ints

MOST_ASKED: Final = 8
"""Ranks, and nodes, of which it is gone through what each buys: those that take most beyond the usual."""
LEAST_GAIN: Final = 0.01
"""Share of an iteration below which nothing is said: noise buys as much."""
EVERYBODY: Final = "all ranks"


@dataclass(frozen=True)
class Gain:
    """What a fix buys.

    Attributes:
        what: Is fixed: ``rank 5``, a node, ``pipeline stage 1``, ``communicator tp`` or EVERYBODY.
        ranks: That this concerns, in order.
        saved_s: Seconds of each iteration.
        iteration_s: What an iteration takes now.
    """

    what: str
    ranks: tuple[int, ...]
    saved_s: float
    iteration_s: float


def gains(
    course: Course, position: Ints, node: Mapping[int, str], since: int = 0, name: Callable[[int], str] = str
) -> tuple[Gain, ...]:
    """What fixing one thing or another buys, the most first; nothing of less than LEAST_GAIN.

    Args:
        course: Some iterations.
        position: A number for each rank, equal for ranks that do the same work, (R,).
        node: Of ranks, where that is known; one that is alone on its node is not asked about twice.
        since: The first iteration that counts, from 0: what a fix buys is not shared out among those before a slowdown.
        name: What a communicator is called, by its index.
    """
    usual_s = course.own_s * _ratio(course, position)
    counts = course.iteration >= since
    excess_s = np.bincount(course.rank, (course.own_s - usual_s) * counts, len(course.ranks))
    fixes: list[tuple[str, Ints, Floats]] = []

    def add(what: str, indices: Ints) -> None:
        fixes.append((what, indices, np.where(np.isin(course.rank, indices), usual_s, course.own_s)))

    for index in np.argsort(-excess_s, kind="stable")[:MOST_ASKED].tolist():
        add(f"rank {course.ranks[index]}", np.array([index]))
    names = np.array([node.get(rank, "") for rank in course.ranks.tolist()])
    known, of, count = np.unique(names, return_inverse=True, return_counts=True)
    of_node_s = np.bincount(of.reshape(-1), excess_s, len(known))
    for at in np.argsort(-of_node_s, kind="stable")[:MOST_ASKED].tolist():
        if known[at] and 1 < count[at] < len(names):
            add(f"node {known[at]}", np.flatnonzero(names == known[at]))
    fixes += _stages(course, position)
    add(EVERYBODY, np.arange(len(course.ranks)))
    now, *each = course.ends_of_each([course.own_s, *(own_s for _, _, own_s in fixes)])
    now_s = course.pace(now, since)
    found = [
        Gain(what, tuple(course.ranks[indices].tolist()), now_s - course.pace(ends, since), now_s)
        for (what, indices, _), ends in zip(fixes, each, strict=True)
    ]
    found += [
        Gain(f"communicator {name(comm)}", ranks, now_s - quicker.pace(quicker.ends(), since), now_s)
        for comm, ranks, quicker in _communicators(course, now_s)
    ]
    worth = [one for one in found if one.saved_s >= LEAST_GAIN * now_s]
    return tuple(sorted(worth, key=lambda one: -one.saved_s))


def _ratio(course: Course, position: Ints) -> Floats:
    """By how much own time before each event would be shorter, were its gap as long as usual, (events,); 1 at most."""
    gaps = int(course.gap.max(initial=0)) + 1
    table_s = np.zeros((len(course.ranks), course.iterations, gaps))
    at = course.rank, course.iteration, course.gap
    np.add.at(table_s, at, course.own_s)
    of_rank_s, usual_s = np.median(table_s, axis=1), np.zeros((len(course.ranks), gaps))
    for one in np.unique(position).tolist():
        alike = position == one
        usual_s[alike] = np.quantile(of_rank_s[alike], 0.5, axis=0, method="lower")
    ratio = np.divide(usual_s[:, None], table_s, out=np.ones_like(table_s), where=table_s > 0)
    return np.asarray(np.minimum(ratio, 1.0)[at])


def _stages(course: Course, position: Ints) -> list[tuple[str, Ints, Floats]]:
    """Stages that take longer than the middle of all, each as that; by the order of their first ranks."""
    members = [np.flatnonzero(position == one) for one in dict.fromkeys(position.tolist())]
    if len(members) < 2:
        return []
    own_s = np.bincount(course.rank, course.own_s, len(course.ranks))
    each_s = np.array([np.quantile(own_s[of], 0.5, method="lower") for of in members])
    middle_s = float(np.median(each_s))
    found = []
    for number, (of, stage_s) in enumerate(zip(members, each_s.tolist(), strict=True)):
        if stage_s > middle_s:
            factor = middle_s / stage_s
            fixed_s = np.where(np.isin(course.rank, of), course.own_s * factor, course.own_s)
            found.append((f"pipeline stage {number}", of, fixed_s))
    return found


def _communicators(course: Course, iteration_s: float) -> list[tuple[int, tuple[int, ...], Course]]:
    """Of those of which transfers take longest beyond comparable ones: index, ranks, and iterations without that."""
    issues = np.flatnonzero((course.what == ISSUE) & (course.round >= 0))
    has_round = np.zeros(len(course.ops), np.bool_)
    has_round[course.op[issues]] = True
    ops = course.ops.those(has_round)
    issues = issues[np.argsort(course.op[issues])]  # in the order of operations, each of which is issued once
    comms, of = np.unique(ops["comm"], return_inverse=True)
    of = of.reshape(-1)
    size = np.zeros(len(comms), np.int64)
    np.maximum.at(size, of, course.members[course.round[issues]])
    moved = what_is_moved(ops, of, len(comms), size, course.iterations)
    of_round = np.full(len(course.members), -1, np.int64)
    of_round[course.round[issues]] = of
    known = of_round >= 0
    each_s = np.bincount(of_round[known], course.alone_s[known], len(comms)) / course.iterations
    found = []
    for group in longer_than_alike(each_s, moved, iteration_s)[:MOST_ASKED]:
        share = np.where(of_round == group.comm, 1.0 / group.times, 1.0)
        quicker = replace(course, alone_s=course.alone_s * share, transfer_s=course.transfer_s * share)
        ranks = np.unique(course.ranks[course.rank[issues[of == group.comm]]])
        found.append((int(comms[group.comm]), tuple(ranks.tolist()), quicker))
    return found
