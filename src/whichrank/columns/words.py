"""Lines of a text in which one of some words stands, all words in one pass."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.library import Struct, addresses, fields, loops

PAIRS = 1 << 16
MOST_LINES = 1 << 14
"""That are found at once."""


class Lines(NamedTuple):
    """Some lines of a text, in their order.

    Attributes:
        starts: Where each begins.
        ends: Where its end of line stands; the length of the text where there is none.
        after: How many lines after it belong to it.
    """

    starts: list[int]
    ends: list[int]
    after: list[int]


class _Words(Struct):
    _fields_, COLUMNS = fields(
        count=None, window=None, text="u1", end="<u4", after="<u4", shift="u1", first="u1", next="u1"
    )


class Words:
    """Words that are searched for.

    A word that begins with a bracket closes a number or a list of them: it is found only behind a digit, a comma or a
    blank.

    Args:
        words: How many lines after a line with each belong to it.

    Raises:
        ValueError: One is shorter than two bytes, or there are more than 254.
    """

    def __init__(self, words: Mapping[bytes, int]) -> None:
        self._words = _Words.of(
            count=len(words),
            window=0,
            text=np.frombuffer(b"".join(words), np.uint8),
            end=np.cumsum([len(word) for word in words], dtype=np.uint32),
            after=np.array(list(words.values()), np.uint32),
            shift=np.zeros(PAIRS, np.uint8),
            first=np.zeros(PAIRS, np.uint8),
            next=np.zeros(len(words), np.uint8),
        )
        if loops().wr_prepare_words(ctypes.byref(self._words)):
            raise ValueError("a word has less than two bytes, or there are too many")

    def lines_in(self, text: bytes) -> Iterator[Lines]:
        """The lines in which a word stands, in their order, some at once."""
        starts, ends, after = (
            np.zeros(MOST_LINES, np.int64),
            np.zeros(MOST_LINES, np.int64),
            np.zeros(MOST_LINES, np.uint32),
        )
        rows = addresses((starts, np.int64), (ends, np.int64), (after, np.uint32))
        at = ctypes.c_size_t(0)
        while at.value < len(text):
            found = loops().wr_lines_with(
                ctypes.byref(self._words), text, len(text), ctypes.byref(at), MOST_LINES, *rows
            )
            yield Lines(*(_listed(column, found) for column in (starts, ends, after)))


def _listed(column: NDArray[Any], count: int) -> list[int]:
    listed: list[int] = column[:count].tolist()
    return listed
