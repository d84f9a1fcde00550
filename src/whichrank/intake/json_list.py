"""A long list in a JSON text, piece by piece: traces have a gigabyte, and a decoder wants a whole text.

The list is cut between its elements: braces and brackets outside of texts are counted, with NumPy over a piece at a
time. What stands around the list is small and is decoded at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichrank.errors import FormatError

PIECE_BYTES: Final = 8 << 20
MOST_AROUND_BYTES: Final = 64 << 20
"""What may stand before the list, or behind it."""
MOST_ELEMENT_BYTES: Final = 64 << 20
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_OPENS, _CLOSES = (ord("{"), ord("[")), (ord("}"), ord("]"))


class JsonList:
    """The elements of one list in a JSON object, as byte strings that are JSON lists themselves.

    Args:
        stream: At the beginning of the object, or of the list if it stands alone.
        key: Of the list.

    Attributes:
        around: The object without the list, once all pieces were taken.
    """

    def __init__(self, stream: IO[bytes], key: str) -> None:
        self.around: dict[str, Any] = {}
        self._stream, self._key = stream, key

    def pieces(self) -> Iterator[bytes]:
        """Lists of some elements each.

        Raises:
            FormatError: The text is no such object, or is cut.
        """
        before, rest = self._up_to_list()
        while True:
            whole, ends = _whole_elements(rest)
            if whole:
                yield b"[" + rest[:whole].strip(b", \r\n\t") + b"]"
            if ends >= 0:
                self.around = self._decoded(before, rest[ends:] + self._tail())
                return
            rest = rest[whole:]
            more = self._stream.read(PIECE_BYTES)
            if not more:
                raise FormatError(f"the JSON is cut within '{self._key}'")
            if len(rest) > MOST_ELEMENT_BYTES:
                raise FormatError(f"an element of '{self._key}' is larger than {MOST_ELEMENT_BYTES >> 20} MiB")
            rest += more

    def _up_to_list(self) -> tuple[bytes, bytes]:
        """What stands before the list, with its bracket, and what comes behind that so far."""
        text = self._stream.read(PIECE_BYTES)
        if text.lstrip()[:1] == b"[":
            at = text.index(b"[") + 1
            return b"", text[at:]
        begins = re.compile(rb'"' + re.escape(self._key.encode()) + rb'"\s*:\s*\[')
        while not (found := begins.search(text)):
            more = self._stream.read(PIECE_BYTES)
            if not more or len(text) > MOST_AROUND_BYTES:
                raise FormatError(f"the JSON has no list '{self._key}'")
            text += more
        return text[: found.end()], text[found.end() :]

    def _tail(self) -> bytes:
        data = bytearray()
        while more := self._stream.read(PIECE_BYTES):
            data += more
            if len(data) > MOST_AROUND_BYTES:
                raise FormatError(f"too much stands behind '{self._key}'")
        return bytes(data)

    def _decoded(self, before: bytes, behind: bytes) -> dict[str, Any]:
        if not before:
            return {}
        try:
            value = msgspec.json.decode(before + behind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FormatError(f"the JSON around '{self._key}' cannot be read: {error}") from error
        return value if isinstance(value, dict) else {}


def _whole_elements(text: bytes) -> tuple[int, int]:
    """Bytes that hold whole elements, and where the list ends: at its closing bracket, -1 if that is not in it."""
    data = np.frombuffer(text, np.uint8)
    quotes = _real_quotes(data)
    opens = (data == _OPENS[0]) | (data == _OPENS[1])
    marks = np.flatnonzero(opens | (data == _CLOSES[0]) | (data == _CLOSES[1]))
    marks = marks[np.searchsorted(quotes, marks) % 2 == 0]
    depth = np.cumsum(np.where(opens[marks], 1, -1))
    end = np.flatnonzero(depth < 0)
    ends = int(marks[end[0]]) if len(end) else -1
    if ends >= 0:
        marks, depth = marks[: end[0]], depth[: end[0]]
    closed = np.flatnonzero(depth == 0)
    # Elements that are no objects or lists, such as numbers, go with the next one that is, or with the end.
    whole = ends if ends >= 0 else int(marks[closed[-1]]) + 1 if len(closed) else 0
    return whole, ends


def _real_quotes(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Where texts begin and end: quotation marks that no odd number of backslashes stands before."""
    quotes = np.flatnonzero(data == _QUOTE)
    slashes = np.flatnonzero(data == _BACKSLASH)
    if not len(slashes) or not len(quotes):
        return quotes
    starts = slashes[np.append(True, np.diff(slashes) != 1)]
    before = np.flatnonzero((quotes > 0) & (data[quotes - 1] == _BACKSLASH))
    run = starts[np.searchsorted(starts, quotes[before], side="right") - 1]
    is_escaped = np.zeros(len(quotes), np.bool_)
    is_escaped[before] = (quotes[before] - run) % 2 == 1
    return quotes[~is_escaped]
