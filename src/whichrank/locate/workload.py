"""Whether a rank has more to do than others in the same position: by what it is given, or by its operations' sizes.

What it is given is seen where torch computes gradients (`sensors.backward`); where it is not, operations say something.

What ranks in the same position exchange for training itself has the same size on all of them, gradients above all.
Sizes that differ go with their batches: activations in tensor and pipeline parallelism, tokens in an all-to-all. So the
operations of a position are laid side by side, place by place in the iteration, and only those are counted whose sizes
differ between its members. Where no operation depends on the batch this says nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whichrank.locate.critical_path import ISSUE, Course
from whichrank.model.iterations import Floats, Ints, Window

MATTERS: Final = 0.01
"""Share of all elements from which differing ones say something of the computation."""


def given_work(window: Window) -> tuple[Floats, Floats]:
    """How much each rank is given beside its position in each iteration, and how much longer that may take.

    Returns:
        Times what is usual, (R, n) each; 1 where it is not known of the whole position.
    """
    more, longer = np.ones(window.own_s.shape), np.ones(window.own_s.shape)
    if window.given is None:
        return more, longer
    for number in np.unique(window.position).tolist():
        mine = np.flatnonzero(window.position == number)
        given = window.given[mine]
        known = (given.elements > 0).all(axis=0)
        usual = given.middle()
        more[mine] = np.where(known, given.times(usual), 1.0)
        longer[mine] = np.where(known, given.longer_than(usual), 1.0)
    return more, longer


def work_of(course: Course, position: Ints) -> Floats:
    """How much each rank has to do, in proportion to the (lower) median of its position.

    Args:
        course: The latest iterations.
        position: A number for each rank, equal for ranks in the same position, (R,).

    Returns:
        (R,), 1 where nothing differs or nobody compares.
    """
    work = np.ones(len(position))
    issues = np.flatnonzero(course.what == ISSUE)
    rank, iteration, gap = course.rank[issues], course.iteration[issues], course.gap[issues]
    count = np.zeros((len(position), course.iterations), np.int64)
    np.add.at(count, (rank, iteration), 1)
    row = np.zeros(len(position), np.int64)
    for number in np.unique(position).tolist():
        members = np.flatnonzero(position == number)
        alike = (count[members] == count[members[0]]).all(axis=0)
        if len(members) < 2 or not alike.any():
            continue
        row[members] = np.arange(len(members))
        mine = (position[rank] == number) & alike[iteration]
        sizes = np.zeros((len(members), course.iterations, int(gap[mine].max(initial=0)) + 1))
        sizes[row[rank[mine]], iteration[mine], gap[mine]] = course.elements[issues[mine]]
        usual = np.quantile(sizes, 0.5, axis=0, method="lower")
        differs = (sizes != usual).any(axis=0)
        if usual[differs].sum() > MATTERS * usual.sum():
            work[members] = sizes[:, differs].sum(axis=1) / usual[differs].sum()
    return work
