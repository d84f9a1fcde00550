"""Writes into one rank's ring from outside, which only the parts allow that are the agent's (`ring.h`)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from whichrank.errors import RingFormatError
from whichrank.model.rows import HEADER
from whichrank.ring.layout import MAGIC, RING, VERSION


class RingFromOutside:
    """The ring at `path`; close the file with `let_go` or `contextlib.closing`.

    Args:
        path: The file `<pid>.ring`.

    Raises:
        RingFormatError: It is no ring, or one of another version.
        OSError: It cannot be opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        header = np.frombuffer(os.pread(self._fd, HEADER.itemsize, 0).ljust(HEADER.itemsize, b"\0"), HEADER)[0]
        if header["magic"] != MAGIC or header["version"] != VERSION or os.fstat(self._fd).st_size != RING.itemsize:
            self.let_go()
            raise RingFormatError(
                "this ring is of no version that is known here", where=str(path), mend="whichrank doctor"
            )

    def let_go(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    close = let_go

    def _pwrite(self, at: int, value: int, size: int) -> None:
        os.pwrite(self._fd, value.to_bytes(size, "little"), at)

    def _pread(self, size: int, at: int) -> bytes:
        data = os.pread(self._fd, size, at)
        if len(data) < size:
            raise RingFormatError("the ring was cut short", mend="whichrank doctor")
        return data
