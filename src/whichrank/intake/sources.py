"""Files, folders and archives as a row of streams, whatever they are called.

Compression and archives are known by their first bytes. Nothing is written to disk, links are not followed out of a
folder, and what unpacks to far more than it takes up is refused before it is held.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from whichrank.errors import FormatError, IncompleteDataError, WhichrankError

HEAD_BYTES: Final = 1 << 16
MOST_DEPTH: Final = 3
"""Archives within archives."""
MOST_FILES: Final = 1 << 17
MOST_BLOWN_UP: Final = 200
"""Times its size that something may unpack to, beyond `FREE_BYTES`."""
FREE_BYTES: Final = 256 << 20
_GZIP, _XZ, _ZSTD, _ZIP = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_ENCRYPTED: Final = 1
_TAR_AT, _TAR = 257, b"ustar"
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Source:
    """Bytes with a name.

    Attributes:
        name: As it is told to the user: a path; of a part of an archive `ARCHIVE:PART`.
        stream: At its beginning, unpacked; read once.
        head: Its first bytes, `HEAD_BYTES` at most; still in the stream.
        modified_s: Unix time of its last change, 0 if not known.
    """

    name: str
    stream: IO[bytes]
    head: bytes
    modified_s: float = 0.0


@dataclass(frozen=True)
class Refused:
    """What could not be opened.

    Attributes:
        name: As it is told to the user.
        why: In one sentence.
    """

    name: str
    why: WhichrankError


def files_in(paths: Iterable[Path]) -> list[Path]:
    """The files that these paths name, folders with all that is below them, in the order of a person.

    Raises:
        IncompleteDataError: A path does not exist or cannot be looked at.
    """
    found: list[Path] = []
    for path in paths:
        try:
            if path.is_dir():
                below = (p for p in path.rglob("*") if p.is_file() and not _hidden(p, path) and _stays(p, path))
                found += sorted(below, key=_in_order)
            elif path.is_file():
                found.append(path)
            else:
                what = "is neither a file nor a folder" if path.exists() else "is not there"
                raise IncompleteDataError(f"'{path}' {what}", mend="give the path of a recording")
        except OSError as error:
            raise IncompleteDataError(f"'{path}' cannot be looked at: {error.strerror}") from error
        if len(found) > MOST_FILES:
            raise IncompleteDataError(
                f"'{path}' holds more than {MOST_FILES:,} files", mend="name the folder of the recording itself"
            )
    return list(dict.fromkeys(found))


def _hidden(path: Path, folder: Path) -> bool:
    """Of a version control system, an editor, a desktop."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _stays(path: Path, folder: Path) -> bool:
    """It is no link to somewhere else."""
    return not path.is_symlink() or path.resolve().is_relative_to(folder.resolve())


def _in_order(path: Path) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(path))]


class _Watched(io.FileIO):
    """A file that says how many of its bytes were read."""

    def __init__(self, path: Path, show: Callable[[int], None]) -> None:
        super().__init__(path)
        self._show, self._done = show, 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = super().readinto(buffer) or 0
        self._done += count
        self._show(self._done)
        return count


@contextmanager
def opened(path: Path, show: Callable[[int], None] = lambda _: None) -> Iterator[Iterator[Source | Refused]]:
    """What is in a file: itself, or the parts of an archive. Each is to be read before the next is asked for.

    Args:
        path: Of the file.
        show: Called with how many of its bytes were read, now and then; parts of an archive may be read twice.
    """
    with io.BufferedReader(_Watched(path, show), HEAD_BYTES) as file:
        size = path.stat().st_size
        yield _within(str(path), file, path.stat().st_mtime, size, MOST_DEPTH)


def sources_in(name: str, stream: IO[bytes], size: int) -> Iterator[Source | Refused]:
    """The same of bytes that have a name and no file."""
    return _within(name, stream, 0.0, size, MOST_DEPTH)


def _within(name: str, stream: IO[bytes], modified_s: float, packed: int, depth: int) -> Iterator[Source | Refused]:
    try:
        plain, most = _unpacked(stream, packed)
        head = plain.peek(HEAD_BYTES)[:HEAD_BYTES]
    except _DAMAGED as error:
        yield Refused(name, _why(error, "cannot be unpacked"))
        return
    except WhichrankError as error:
        yield Refused(name, error)
        return
    if head.startswith(_ZIP):
        is_file = depth == MOST_DEPTH and most == packed  # then it can be gone through in any order
        yield from _within_zip(name, stream if is_file else plain, modified_s, packed, depth)
        return
    if head[_TAR_AT : _TAR_AT + len(_TAR)] != _TAR:
        yield Source(name, plain, head, modified_s)
        return
    if not depth:
        yield Refused(name, FormatError(f"it is an archive within {MOST_DEPTH} archives", mend="unpack it"))
        return
    try:
        with tarfile.open(fileobj=plain, mode="r|") as archive:
            for count, part in enumerate(archive):
                if count >= MOST_FILES:
                    yield Refused(name, FormatError(f"it holds more than {MOST_FILES:,} files"))
                    return
                if archive.offset >= most + tarfile.BLOCKSIZE:  # where the next part begins; tarfile would go there
                    raise FormatError(f"it is a damaged archive: '{part.name}' in it is larger than what is left of it")
                inner = archive.extractfile(part) if part.isfile() else None
                if inner is not None:
                    size = min(part.size, most)
                    yield from _within(f"{name}:{part.name}", inner, float(part.mtime), size, depth - 1)
    except _DAMAGED as error:
        yield Refused(name, _why(error, "is a damaged archive"))
    except WhichrankError as error:
        yield Refused(name, error)


def _within_zip(name: str, stream: IO[bytes], modified_s: float, packed: int, depth: int) -> Iterator[Source | Refused]:
    """The parts of a zip archive. Its list is at its end, so one that is within something else is held in memory."""
    if not depth:
        yield Refused(name, FormatError(f"it is an archive within {MOST_DEPTH} archives", mend="unpack it"))
        return
    most = FREE_BYTES + MOST_BLOWN_UP * packed
    try:
        if not stream.seekable():
            stream = io.BytesIO(stream.read(FREE_BYTES))
        with zipfile.ZipFile(stream) as archive:
            for count, part in enumerate(archive.infolist()):
                if count >= MOST_FILES:
                    yield Refused(name, FormatError(f"it holds more than {MOST_FILES:,} files"))
                    return
                where = f"{name}:{part.filename}"
                if part.is_dir():
                    continue
                if part.flag_bits & _ENCRYPTED:
                    yield Refused(where, FormatError("it is encrypted", mend="unpack it"))
                    continue
                with archive.open(part) as inner:
                    bounded = io.BufferedReader(_Raw(inner, most), HEAD_BYTES)
                    size = min(part.file_size, most)
                    yield from _within(where, cast(IO[bytes], bounded), modified_s, size, depth - 1)
    except (*_DAMAGED, NotImplementedError, RuntimeError, ValueError) as error:
        yield Refused(name, _why(error, "is a damaged archive"))
    except WhichrankError as error:
        yield Refused(name, error)


def _why(error: Exception, what: str) -> WhichrankError:
    """What the bytes are, unless the system could not read them."""
    if isinstance(error, OSError) and error.errno:
        return IncompleteDataError(f"it cannot be read: {error.strerror}")
    return FormatError(f"it {what}: {error}")


def _unpacked(stream: IO[bytes], packed: int) -> tuple[io.BufferedReader[Any], int]:
    """The stream without its compression, and how many bytes it may have."""
    plain: io.BufferedReader[Any] = io.BufferedReader(_Raw(stream), HEAD_BYTES)
    most = packed
    for _ in range(MOST_DEPTH):
        start = plain.peek(8)
        inner: IO[bytes]
        if start.startswith(_GZIP):
            inner = cast(IO[bytes], gzip.GzipFile(fileobj=plain))
        elif start.startswith(_XZ):
            inner = lzma.open(plain)  # noqa: SIM115 (closed with the file that it reads)
        elif start.startswith(_ZSTD):
            inner = _zstd(plain)
        else:
            return plain, most
        most = FREE_BYTES + MOST_BLOWN_UP * packed
        plain = io.BufferedReader(_Raw(inner, most), HEAD_BYTES)
    raise FormatError(f"it is compressed more than {MOST_DEPTH} times", mend="unpack it")


def _zstd(stream: IO[bytes]) -> IO[bytes]:
    try:
        import zstandard
    except ImportError as error:
        raise FormatError("it is compressed with zstd", mend="pip install zstandard, or unzstd FILE") from error
    reader: IO[bytes] = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(stream)
    return reader


class _Raw(io.RawIOBase):
    """A stream that says how much came out of it, and refuses to go on beyond a limit."""

    def __init__(self, stream: IO[bytes], most: int | None = None) -> None:
        super().__init__()
        self._stream, self._left = stream, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        filled = 0
        while filled < len(buffer) and (data := self._stream.read(len(buffer) - filled)):
            buffer[filled : filled + len(data)] = data
            filled += len(data)
        if self._left is not None:
            self._left -= filled
            if self._left < 0:
                raise FormatError(f"it unpacks to more than {MOST_BLOWN_UP} times its size, and is left alone")
        return filled
