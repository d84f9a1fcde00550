"""Lines in which something of interest stands, found without looking at the others.

Most of a log is of other things. So a block is searched for all words at once, by a loop that runs in C, and only the
lines around a word are taken out of it: a gigabyte of losses takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import AnyStr, Final

from whichrank.columns.words import Words

MOST_LINE: Final = 1 << 22
"""Bytes of a line that are looked at: whoever pastes a log may lose all ends of lines."""


def lines_of_interest(blocks: Iterable[bytes], hints: Mapping[bytes, int]) -> Iterator[tuple[bytes, bool]]:
    """Lines in which a hint stands, and those that belong to it, each with whether its end was read.

    Args:
        blocks: Of whole lines.
        hints: How many lines after a line with this word belong to it. One that begins with a bracket closes a number
            or a list of them: it is not the end of `[INFO]`.
    """
    words = Words(hints)
    left = 0  # lines that still belong to a hint
    for block in blocks:
        at, size = 0, len(block)
        for starts, ends, after in words.lines_in(block):
            if not left and not any(after):
                for start, end in zip(starts, ends, strict=True):
                    yield block[start : min(end, start + MOST_LINE)], end < size
                continue
            for start, end, more in zip(starts, ends, after, strict=True):
                yield from (rows := list(_lines_between(block, at, start, left)))
                left = max(left - len(rows) - 1, more)
                yield block[start : min(end, start + MOST_LINE)], end < size
                at = end + 1
        yield from (rows := list(_lines_between(block, at, size, left)))
        left -= len(rows)


def _lines_between(block: bytes, start: int, stop: int, most: int) -> Iterator[tuple[bytes, bool]]:
    """At most so many of the lines in a part of a block."""
    while most > 0 and start < stop:
        end = block.find(b"\n", start)
        yield block[start : min(end if end >= 0 else stop, start + MOST_LINE)], end >= 0
        start, most = end + 1 if end >= 0 else stop, most - 1


def has_any(text: AnyStr, words: Iterable[AnyStr]) -> bool:
    """Does one of these stand in a text? Not `any`, which takes three times as long: this is asked of each line."""
    for word in words:  # noqa: SIM110
        if word in text:
            return True
    return False
