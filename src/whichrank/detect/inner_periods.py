"""Shorter periods inside of a period: iterations, where the period is that of a log among them.

A job that logs in every tenth iteration repeats itself only after ten. Its period is ten iterations and the log, and of
these one would be measured. So operations are looked for that come again and again in a period, with the same
operations behind them nearly each time.

Example: in `a b a b a b a b x`, where `x` is a log, `a` and `b` come four times, and the usual `a b` three times of
these: either may begin an iteration. Layers repeat themselves too, inside of an iteration. They are told from
iterations by communicators: an iteration has them all, or at least that which closes it. On a single communicator one
operation again and again is taken for layers. The rest is for whoever knows times: iterations are all about as long,
and layers are not, since the backward pass takes twice as long.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Final

import numpy as np

from whichrank.model.iterations import Bools, Ints
from whichrank.model.sequence import Shapes

USUAL: Final = 0.75
"""Share of the repetitions that are alike: a log in every fourth iteration, or less often. In the others is more."""

LITTLE: Final = 0.2
"""Share of a period that is more than the usual repetition over and over: a log has few operations."""


def inner_periods(shapes: Shapes, groups: Ints, closes: Bools) -> list[set[int]]:
    """Which operations may begin an iteration that is shorter than a period.

    Args:
        shapes: The operations of a period, (p,).
        groups: The communicator of each, -1 of messages, (p,).
        closes: Whether each closes an iteration, (p,).

    Returns:
        Sets of shapes that come equally often, the most frequent first; empty if there are none.
    """
    found: dict[int, set[int]] = {}
    values, counts = np.unique(shapes, return_counts=True)
    for shape, count in zip(values.tolist(), counts.tolist(), strict=True):
        if count > 1 and _is_iteration(_usual_places(shapes, shape), shapes, groups, closes):
            found.setdefault(count, set()).add(shape)
    return [found[count] for count in sorted(found, reverse=True)]


def _usual_places(shapes: Shapes, shape: int) -> Ints:
    """The places of a usual repetition, from this operation to before the next one like it; empty if none is usual."""
    begins = np.flatnonzero(shapes == shape)
    ends = [*begins[1:].tolist(), int(begins[0]) + len(shapes)]
    round_twice = np.concatenate((shapes, shapes))
    parts = [round_twice[begin:end].tobytes() for begin, end in pairwise([int(begins[0]), *ends])]
    usual, count = Counter(parts).most_common(1)[0]
    which = parts.index(usual)
    more = len(shapes) - len(parts) * int(ends[which] - begins[which])
    if count < USUAL * len(parts) or len(usual) > min(map(len, parts)) or more > LITTLE * len(shapes):
        return np.zeros(0, np.int64)
    return np.arange(begins[which], ends[which]) % len(shapes)


def _is_iteration(places: Ints, shapes: Shapes, groups: Ints, closes: Bools) -> bool:
    """Whether what is in these places may be an iteration, by its operations and their communicators."""
    if not len(places):
        return False
    if closes.any():
        return bool(closes[places].any())
    return len(np.unique(shapes[places])) > 1 and bool(np.isin(groups[groups >= 0], groups[places]).all())
