"""How many microbatches each data-parallel group should get, so that an iteration is over as soon as it can be.

A group that takes longer for a microbatch gets fewer of them, and the others more: m_i of M, at least one, so that the
longest m_i * t_i is as short as possible. The answer is exact. Groups finish within T if the largest numbers that fit
into T, floor(T / t_i) or one, add up to M or more; the shortest such T is found by halving an interval down to
neighbouring floating-point numbers. What is then too much lies in groups that finish at T, of which one at least keeps
it. A group that needs longer than T for its only one changes nothing for the others: they share evenly all the same.

Example: of four groups one takes twice as long, and there are 28 microbatches. Evenly each gets 7, and an iteration
takes 14; with 4 for the slow one and 8 for the others it takes 8.

Source: Greyhound, section 5.2, equation 1, solved there as a quadratic program, which minimises the variance instead.
"""

from __future__ import annotations

import numpy as np

from whichrank.model.iterations import Floats, Ints


def balanced(microbatch_s: Floats, total: int, multiple: int = 1) -> Ints:
    """Microbatches of each group, (D,), of which the longest takes as short as possible.

    Of several answers that are as good the one is taken in which groups that come first have more.

    Args:
        microbatch_s: What one microbatch takes in each group, positive seconds, (D,).
        total: Microbatches of all groups.
        multiple: Each group gets a multiple of it, as some schedules of a pipeline need.

    Raises:
        ValueError: There is no such answer.
    """
    groups = len(microbatch_s)
    if multiple < 1 or total % multiple:
        raise ValueError(f"{total} microbatches cannot be shared out in parts of {multiple}")
    if not groups or total < groups * multiple:
        raise ValueError(f"{total} microbatches are too few for {groups} groups, {multiple} for each at least")
    if not (np.isfinite(microbatch_s) & (microbatch_s > 0)).all():
        raise ValueError("what a microbatch takes must be known of each group, and be more than nothing")
    parts, part_s = total // multiple, np.asarray(microbatch_s, np.float64) * multiple
    if parts == groups:
        return np.full(groups, multiple, np.int64)
    # Within `enough` seconds all is done, by groups that do one part in any case; within `too_few` it is not.
    enough, too_few = float(parts * part_s.max()), 0.5 * float(part_s.min())
    while too_few < (middle := too_few + (enough - too_few) / 2) < enough:
        if _within(middle, part_s).sum() >= parts:
            enough = middle
        else:
            too_few = middle
    counts = _within(enough, part_s)
    # What is too much lies in groups that are done at the end exactly.
    lasts = np.where(counts > 1, counts * part_s, -np.inf)
    counts[np.argsort(lasts, kind="stable")[groups - int(counts.sum() - parts) :]] -= 1
    return multiple * counts


def _within(seconds: float, part_s: Floats) -> Ints:
    """Parts that each group does in this time, one at least."""
    return np.maximum(np.floor(seconds / part_s), 1.0).astype(np.int64)


def iteration_s(microbatch_s: Floats, counts: Ints) -> float:
    """What an iteration takes with these: until the last group is done."""
    return float((microbatch_s * counts).max())
