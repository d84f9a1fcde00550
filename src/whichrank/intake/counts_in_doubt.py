"""Whether ranks may be compared by how many lines a log has of each: a log may be cut, or lines of it be lost.

Example: ranks 0 to 7 log each collective in turn, and the log ends within a round. Then those that come later in a
round are behind by one, and that says nothing of them. So is it if a rank lacks the line of a collective in the middle,
which others have: its last lines may be lost too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import Final

LEAST_AT_A_CUT: Final = 2
"""Ranks that are behind by one, and none by more, from which a log is taken to be cut: one alone may be late."""


def are_comparable(numbers: Sequence[Collection[int]]) -> bool:
    """May the ranks of a communicator be compared?

    Args:
        numbers: Of each rank, the numbers of the collectives of which it has a line: the last ones.
    """
    known = sorted({number for mine in numbers for number in mine})
    if any(_has_lost(mine, known) for mine in numbers):
        return False
    last = [max(mine, default=0) for mine in numbers]
    behind = [max(last, default=0) - one for one in last]
    return max(behind, default=0) != 1 or behind.count(1) < LEAST_AT_A_CUT


def _has_lost(mine: Collection[int], known: Sequence[int]) -> bool:
    """Does it lack a line between two of its own that another has? `known`: the numbers of all, sorted."""
    own = set(mine)
    return bool(own) and bisect_right(known, max(own)) - bisect_left(known, min(own)) > len(own)
