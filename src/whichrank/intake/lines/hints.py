"""Lines in which something of interest stands, found without looking at the others.

Most of a log is of other things. So a block is searched for a few words, each by one call that runs in C, and only the
lines around a word are taken out of it: a gigabyte of losses takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

MOST_LINE: Final = 1 << 22
"""Bytes of a line that are looked at: whoever pastes a log may lose all ends of lines."""
_ENDS_LIST: Final = tuple(bytes((one,)) for one in b"0123456789, ")
"""Before a hint that begins with a bracket: it closes a number or a list of them, and not the `[INFO]` of a line."""


def lines_of_interest(blocks: Iterable[bytes], hints: Mapping[bytes, int]) -> Iterator[tuple[bytes, bool]]:
    """Lines in which a hint stands, and those that belong to it, each with whether its end was read.

    Args:
        blocks: Of whole lines.
        hints: How many lines after a line with this word belong to it.
    """
    left = 0
    for block in blocks:
        wanted, ends = _wanted(block, hints)
        starts = sorted(wanted)
        at, place, size = 0, 0, len(block)
        if not left and max(wanted.values(), default=1) == 1:
            for at in starts:
                end = ends[at]
                yield block[at : min(end if end >= 0 else size, at + MOST_LINE)], end >= 0
            continue
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


def _wanted(block: bytes, hints: Mapping[bytes, int]) -> tuple[dict[int, int], dict[int, int]]:
    """By the begin of a line with a hint, how many lines are to be read from there, and where it ends, -1: nowhere."""
    wanted: dict[int, int] = {}
    ends: dict[int, int] = {}
    for hint, after in hints.items():
        at, ends_list = block.find(hint), hint.startswith(b"]")
        while at >= 0:
            if ends_list and block[at - 1 : at] not in _ENDS_LIST:
                at = block.find(hint, at + 1)
                continue
            start = block.rfind(b"\n", 0, at) + 1
            if wanted.get(start, 0) <= after:
                wanted[start] = 1 + after
            end = ends[start] = block.find(b"\n", at)
            at = block.find(hint, end) if end >= 0 else -1
    return wanted, ends
