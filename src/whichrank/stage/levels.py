"""How many blocks must be done one after the other before each: what one sorted pass over a graph goes along."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def levels_of(before: Ints, after: Ints, blocks: int) -> Ints:
    """The length of the longest chain of dependencies that leads to each block, in blocks.

    Level by level, those blocks come next of which all dependencies have a level. For a chain 0 -> 1 -> 2 the levels
    are 0, 1 and 2.

    Args:
        before: The earlier block of each dependency, (e,).
        after: The later one, (e,).
        blocks: How many there are, n.

    Returns:
        (n,); -1 of a block that waits for itself.
    """
    order = np.argsort(before, kind="stable")
    bounds = np.searchsorted(before[order], np.arange(blocks + 1))
    missing, levels = np.bincount(after, minlength=blocks), np.full(blocks, -1, np.int64)
    ready, level = np.flatnonzero(missing == 0), 0
    while len(ready):
        levels[ready] = level
        count = bounds[ready + 1] - bounds[ready]
        at = np.repeat(bounds[ready] - np.cumsum(count) + count, count) + np.arange(count.sum())
        followers = after[order[at]]
        np.subtract.at(missing, followers, 1)
        ready, level = np.unique(followers[missing[followers] == 0]), level + 1
    return levels
