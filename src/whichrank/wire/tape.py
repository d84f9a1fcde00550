"""A tape: all that an analyzer was reported of a job, and when, so that it can be gone through again.

    magic "WRTAPE" · format as two bytes, little endian · head · entries
    head:   length (4) · check (4) · MessagePack of a `Head`
    entry:  kind (1) · time (8, a float) · length (4) · check (4) · what `envelope` makes of a batch, else nothing

It is written as it comes, so the tape of a run that was killed ends somewhere within an entry: what is whole is used.
A check is the CRC-32 of all of its part but itself: of what was damaged nothing is believed. Lengths are bounded before
anything is read.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, Literal, NamedTuple

import msgspec

from whichrank.errors import EnvelopeFormatError, FormatError, IncompleteDataError
from whichrank.model.telemetry import Batch
from whichrank.wire.envelope import MOST_BYTES, decode, encode

FILE_NAME: Final = "telemetry.tape"
_MAGIC: Final = b"WRTAPE"
_FORMAT: Final = 2
_START: Final = struct.Struct("<6sH")
_NUMBER: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<cdI")
_MOST_HEAD: Final = 1 << 20
_KINDS: Final[dict[bytes, Literal["batch", "tick", "finish"]]] = {b"B": "batch", b"T": "tick", b"E": "finish"}
_LETTERS: Final = {kind: letter for letter, kind in _KINDS.items()}


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the analyzer was made with.

    Attributes:
        job: Name.
        utc_offset_s: From the times of the entries to UTC.
        settings: Of the analyzer, by name.
    """

    job: str
    utc_offset_s: float
    settings: dict[str, Any]


class Entry(NamedTuple):
    """One call of the analyzer.

    Attributes:
        now_s: Its time, seconds of a monotonic clock.
        batch: What it was fed with, None for the others.
    """

    kind: Literal["batch", "tick", "finish"]
    now_s: float
    batch: Batch | None


class TapeWriter:
    """Writes a tape; it is for its user only.

    Raises:
        OSError: It cannot be written; also from every other call.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self._file: IO[bytes] = open(path, "wb", opener=_for_its_user)  # noqa: SIM115  # closed in `close`
        content = msgspec.msgpack.encode(head)
        length = _NUMBER.pack(len(content))
        self._file.write(_START.pack(_MAGIC, _FORMAT) + length + _check(length, content) + content)

    def write(self, kind: Literal["batch", "tick", "finish"], now_s: float, batch: Batch | None = None) -> None:
        """Append an entry."""
        content = encode(batch) if batch is not None else b""
        start = _ENTRY.pack(_LETTERS[kind], now_s, len(content))
        self._file.write(start + _check(start, content) + content)

    def close(self) -> None:
        """Write what is still in memory, and close."""
        self._file.close()


class Tape:
    """Reads a tape.

    Attributes:
        head: What the analyzer was made with.
        is_whole: Whether it ended with an entry; known when all were read.

    Raises:
        IncompleteDataError: It cannot be read, or ends within its head.
        FormatError: It is no tape of the format that this whichrank reads.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_whole = True
        try:
            if path.exists() and not path.is_file():
                raise IncompleteDataError("the tape cannot be read: it is no file", where=str(path))
            self._file: IO[bytes] = path.open("rb")
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            self.head = self._read_head()
        except BaseException:
            self._file.close()
            raise

    def _read_head(self) -> Head:
        start = self._read(_START.size)
        if len(start) < _START.size or start[: len(_MAGIC)] != _MAGIC:
            raise FormatError("this is no tape of whichrank", where=str(self._path), mend="whichrank run --record")
        found = _START.unpack(start)[1]
        if found != _FORMAT:
            age = "newer" if found > _FORMAT else "older"
            what = f"the tape has format {found}, {age} than the {_FORMAT} that this whichrank reads"
            raise FormatError(what, where=str(self._path))
        length, check = self._read(_NUMBER.size), self._read(_NUMBER.size)
        content = self._read(min(_NUMBER.unpack(length)[0], _MOST_HEAD)) if len(length) == _NUMBER.size else b""
        try:
            if _check(length, content) != check:
                raise msgspec.DecodeError
            return msgspec.msgpack.decode(content, type=Head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise IncompleteDataError("the head of the tape is damaged", where=str(self._path)) from error

    def __iter__(self) -> Iterator[Entry]:
        """The entries in order; ends before one that is not whole.

        Raises:
            FormatError: An entry is none.
        """
        with self._file:
            while start := self._read(_ENTRY.size):
                if len(start) < _ENTRY.size:
                    self.is_whole = False
                    return
                letter, now_s, length = _ENTRY.unpack(start)
                if letter not in _KINDS or length > MOST_BYTES or (letter == b"B") != (length > 0):
                    raise self._damaged()
                check, content = self._read(_NUMBER.size), self._read(length)
                if len(check) < _NUMBER.size or len(content) < length:
                    self.is_whole = False
                    return
                if _check(start, content) != check:
                    raise self._damaged()
                yield Entry(_KINDS[letter], now_s, self._batch(content) if content else None)

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def _batch(self, content: bytes) -> Batch:
        try:
            message = decode(content)
        except EnvelopeFormatError as error:
            raise self._damaged() from error
        if not isinstance(message, Batch):
            raise self._damaged()
        return message

    def _damaged(self) -> FormatError:
        where = f"{self._path}, byte {self._file.tell()}"
        mend = "whichrank why  shows what was reported while the job ran"
        return FormatError("the tape is damaged here", where=where, mend=mend)


def _for_its_user(path: str, flags: int) -> int:
    """Open a file that is private whatever the umask and whatever was there; a link or a pipe is refused."""
    fd = os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        if status.st_uid == os.geteuid():
            os.fchmod(fd, 0o600)
        os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check(start: bytes, content: bytes | bytearray) -> bytes:
    return _NUMBER.pack(zlib.crc32(content, zlib.crc32(start)))


def _unreadable(path: Path, error: OSError) -> IncompleteDataError:
    mend = "whichrank run --record  keeps one" if isinstance(error, FileNotFoundError) else ""
    return IncompleteDataError(f"the tape cannot be read: {error.strerror}", where=str(path), mend=mend)
