"""Lines in which something of interest stands, found without looking at the others.

Most of a log is of other things. So a block is searched for a few words, each by one call that runs in C, and only the
lines around a word are taken out of it: a gigabyte of losses takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

MOST_LINE: Final = 1 << 22
"""Bytes of a line that are looked at: whoever pastes a log may lose all ends of lines."""


def lines_of_interest(blocks: Iterable[bytes], hints: Mapping[bytes, int]) -> Iterator[tuple[bytes, bool]]:
    """Lines in which a hint stands, and those that belong to it, each with whether its end was read.

    Args:
        blocks: Of whole lines.
        hints: How many lines after a line with this word belong to it.
    """
    left = 0
    for block in blocks:
        wanted = _wanted(block, hints)
        starts = sorted(wanted)
        at, place, size = 0, 0, len(block)
        while left or place < len(starts):
            if not left:
                at = starts[place]
            if at >= size:
                break
            while place < len(starts) and starts[place] <= at:
                left = max(left, wanted[starts[place]])
                place += 1
            end = block.find(b"\n", at)
            yield block[at : min(end if end >= 0 else size, at + MOST_LINE)], end >= 0
            left -= 1
            at = end + 1 if end >= 0 else size


def _wanted(block: bytes, hints: Mapping[bytes, int]) -> dict[int, int]:
    """By the begin of a line with a hint, how many lines are to be read from there."""
    wanted: dict[int, int] = {}
    for hint, after in hints.items():
        at = block.find(hint)
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            wanted[start] = max(wanted.get(start, 0), 1 + after)
            end = block.find(b"\n", at)
            at = block.find(hint, end) if end >= 0 else -1
    return wanted
