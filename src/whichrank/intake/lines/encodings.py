"""Text of any encoding as blocks of whole lines in UTF-8.

A log that went through PowerShell is UTF-16, one from a Windows editor begins with a mark, and one that was rotated
while it was written begins with zeros.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import IO, Final

from whichrank.errors import FormatError

BLOCK_BYTES: Final = 4 << 20
MOST_BYTES: Final = 8 << 30
SAMPLE_BYTES: Final = 4096
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip
_LEAST_ZEROS: Final = 0.4
"""Share of zeros among every second byte of UTF-16 without a mark; mostly Latin letters have one each."""


def encoding_of(head: bytes) -> tuple[str, int]:
    """The encoding of a text that begins like this, "" if it is no text; and the length of its mark."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, len(mark)
    sample = head[:SAMPLE_BYTES].lstrip(b"\x00")
    if b"\x00" not in sample:
        return ("utf-8", 0) if sample else ("", 0)
    sample = head[:SAMPLE_BYTES]
    for name, first in (("utf-16-le", 1), ("utf-16-be", 0)):
        high, low = sample[first::2], sample[1 - first :: 2]
        if high.count(0) > _LEAST_ZEROS * len(high) and low.count(0) < _LEAST_ZEROS * len(low) / 4:
            return name, 0
    return "", 0


def is_text(head: bytes) -> bool:
    """Is what begins like this a text?"""
    return bool(encoding_of(head)[0])


def as_utf8(stream: IO[bytes], head: bytes) -> tuple[IO[bytes], bytes]:
    """The same text in UTF-8 without a mark, and its first bytes; unchanged if it is that already, or no text."""
    name, skip = encoding_of(head)
    if not name or (name == "utf-8" and not skip):
        return stream, head
    stream.read(skip)
    if name == "utf-8":
        return stream, head[skip:]
    raw = io.BufferedReader(_Recoded(stream, name), BLOCK_BYTES)
    return raw, bytes(raw.peek(len(head))[: len(head)])


class _Recoded(io.RawIOBase):
    """A stream of another encoding, in UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        super().__init__()
        self._stream, self._left = stream, b""
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            data = self._stream.read(1 << 16)
            self._left = self._decoder.decode(data, final=not data).encode("utf-8", "replace")
            if not data:
                break
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Blocks that end with a line, but for the last; a line that is longer than a block is cut at a blank.

    Raises:
        FormatError: It is longer than `MOST_BYTES`.
    """
    kept, total = b"", 0
    while data := stream.read(BLOCK_BYTES):
        total += len(data)
        if total > MOST_BYTES:
            raise FormatError(f"it is longer than {MOST_BYTES >> 30} GiB")
        data = kept + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > 2 * BLOCK_BYTES:
            end = data.rfind(b" ") + 1 or len(data)
        if end:
            yield data[:end]
        kept = data[end:]
    if kept:
        yield kept
