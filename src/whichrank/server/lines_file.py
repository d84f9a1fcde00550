"""Files in the folder of a run to which one line of JSON after the other is added.

They are bounded: of what is too much the older half goes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from whichrank.server.private_file import open_private, write_private
from whichrank.server.regular_file import open_regular

MOST_BYTES: Final = 1 << 22
T = TypeVar("T")


def add_line(path: Path, value: msgspec.Struct) -> None:
    """Write a line.

    Raises:
        OSError: It cannot be written.
    """
    line = msgspec.json.encode(value) + b"\n"
    with open_private(path) as file:
        if file.seek(0, os.SEEK_END) + len(line) <= MOST_BYTES:
            file.write(line)
            return
        file.seek(-(MOST_BYTES // 2), os.SEEK_END)
        kept = file.read().partition(b"\n")[2]
    part = path.with_name(f"{path.name}.part")
    write_private(part, kept + line)
    part.replace(path)


class Lines(Generic[T]):
    """Lines of a file, as they come.

    Args:
        path: Of the file; it need not be there yet.
        kind: What a line holds.
    """

    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path, self._decoder = path, msgspec.json.Decoder(kind)
        self._file, self._at = (0, 0), 0

    def skip(self) -> None:
        """Leave out those that are there now."""
        with contextlib.suppress(OSError, ValueError), open_regular(self._path, follow=False) as file:
            status = os.fstat(file.fileno())
            self._file, self._at = (status.st_dev, status.st_ino), status.st_size

    def read(self) -> list[T]:
        """Those that were written since the last call; lines that are none are left out."""
        with contextlib.suppress(OSError, ValueError), open_regular(self._path, follow=False) as file:
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) != self._file or status.st_size < self._at:
                self._file, self._at = (status.st_dev, status.st_ino), 0  # the older half is gone: all are read again
            file.seek(self._at)
            lines = file.read(MOST_BYTES).splitlines(keepends=True)
            whole = [line for line in lines if line.endswith(b"\n")]
            self._at += sum(map(len, whole))
            return [value for line in whole if (value := self._decoded(line)) is not None]
        return []

    def _decoded(self, line: bytes) -> T | None:
        try:
            return self._decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None
