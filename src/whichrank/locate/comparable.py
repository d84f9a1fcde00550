"""Communicators that take longer than comparable ones (Greyhound, section 4.3, cross-group comparison).

Communicators are comparable if they have as many members and move the same in an iteration: the same kinds of
operations, of the same sizes, as often. Then their operations should take as long, too. If those of one take more than
a tenth longer than the median, a rank or a link in it is slow, or something that its members wait for. So this says
what should be measured, and never who is slow. Example: of the data-parallel communicators of four pipeline stages
three spend 40 ms of an iteration in operations and one 70 ms: the ranks of that one are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.locate.events import whole_iterations
from whichrank.model.iterations import Floats, Ints, Ops
from whichrank.model.signature import mix

LONGER: Final = 1.1
"""Times the median of comparable communicators from which one takes longer: that of the paper."""
MATTERS: Final = 0.02
"""Share of an iteration by which it must take longer: operations of microseconds differ by more than a tenth."""
VARIED: Final = 0.1
"""Share of a communicator's operations that may differ from iteration to iteration, as those of an evaluation."""


@dataclass(frozen=True)
class LongGroup:
    """A communicator that takes longer than comparable ones.

    Attributes:
        comm: Its index.
        times: What the median of the comparable ones takes.
        comparable: How many those are, without it.
    """

    comm: int
    times: float
    comparable: int


def long_groups(
    parts: Sequence[Ops], steps: np.ndarray[Any, Any], comm_size: Ints, iteration_s: float
) -> list[LongGroup]:
    """Communicators that take longer than comparable ones, the longest first.

    Args:
        parts: Operations, in parts; others than those of these iterations are left out.
        steps: Rows of STEP, of each rank the same number, with consecutive counters; the first one opens.
        comm_size: Members of each communicator.
        iteration_s: How long an iteration takes.
    """
    whole = whole_iterations(parts, steps)
    if whole is None:
        return []
    iterations, ops = whole.steps.shape[1] - 1, whole.ops
    comms, of = np.unique(ops["comm"], return_inverse=True)
    of = of.reshape(-1)
    moved = what_is_moved(ops, of, len(comms), comm_size[comms], iterations)
    lasted_s = np.bincount(of, np.maximum(ops["end_ns"] - ops["issue_ns"], 0) / 1e9, len(comms))
    in_operations_s: Floats = lasted_s / (comm_size[comms] * iterations)
    return [
        replace(group, comm=int(comms[group.comm])) for group in longer_than_alike(in_operations_s, moved, iteration_s)
    ]


def longer_than_alike(seconds: Floats, moved: NDArray[np.uint64], iteration_s: float) -> list[LongGroup]:
    """Which of some communicators take longer than comparable ones, by their places, the longest first.

    Args:
        seconds: Of each in an iteration, (C,).
        moved: A number for each, equal for those that are comparable, (C,).
        iteration_s: How long an iteration takes.
    """
    found = []
    for one in np.unique(moved):
        alike = np.flatnonzero(moved == one)
        usual_s = _median_of_others(seconds[alike])
        more_s = seconds[alike] - usual_s
        is_long = (more_s > (LONGER - 1) * usual_s) & (more_s >= MATTERS * iteration_s) & (usual_s > 0)
        found += [
            LongGroup(int(alike[at]), float(seconds[alike[at]] / usual_s[at]), len(alike) - 1)
            for at in np.flatnonzero(is_long).tolist()
        ]
    return sorted(found, key=lambda group: -group.times)


def _median_of_others(values: Floats) -> Floats:
    """Of each the median without it, infinite for one alone, (n,)."""
    count = len(values)
    if count < 2:
        return np.full(count, np.inf)
    order = np.argsort(values, kind="stable")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    low, high = (count - 2) // 2, (count - 1) // 2  # of those left, in order
    in_order = values[order]
    middle = [in_order[at + (place <= at)] for at in (low, high)]
    return np.asarray((middle[0] + middle[1]) / 2)


def what_is_moved(ops: Ops, of: Ints, comms: int, size: Ints, iterations: int) -> NDArray[np.uint64]:
    """A number for each communicator, equal for those of one size that move the same in an iteration, (C,).

    One whose operations are of other sizes in each iteration is like no other.

    Args:
        ops: Operations, (n,).
        of: The place of the communicator of each, (n,).
        comms: How many communicators there are.
        size: Members of each, (C,).
        iterations: In which the operations are.
    """
    sort = mix(mix(np.ones(len(of), np.uint64), ops["kind"].astype(np.uint64)), ops["count"])
    _, first, times = np.unique(mix(sort, of.astype(np.uint64)), return_index=True, return_counts=True)
    often = np.round(times / iterations).astype(np.uint64)
    each = np.where(often > 0, mix(sort[first], often), np.uint64(0))
    moved = mix(np.ones(comms, np.uint64), size.astype(np.uint64))
    np.add.at(moved, of[first], each)
    varied = np.bincount(of[first], np.where(often > 0, 0, times), comms)
    by_itself = mix(moved, np.arange(comms, dtype=np.uint64))
    return np.where(varied > VARIED * np.bincount(of, minlength=comms), by_itself, moved)
