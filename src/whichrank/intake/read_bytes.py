"""How many bytes of files were read: what a progress bar shows, since one file may be larger than all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path


class ReadBytes:
    """Of files that are read at once, in any order.

    Args:
        files: In the order of their numbers.
        show: Called with the bytes that were read, and all bytes. Neither is ever less than it was.
    """

    def __init__(self, files: Sequence[Path], show: Callable[[int, int], None]) -> None:
        self._sizes = [0] * len(files)
        for number, path in enumerate(files):
            with suppress(OSError):  # whoever reads it says so
                self._sizes[number] = path.stat().st_size
        self._read = [0] * len(files)
        self._done, self._total, self._show = 0, sum(self._sizes), show

    def part_of(self, number: int, done: int) -> None:
        """So many bytes of a file were read; of an archive some are read twice."""
        done = min(done, self._sizes[number])
        if done > self._read[number]:
            self._done += done - self._read[number]
            self._read[number] = done
        self._show(self._done, self._total)

    def whole(self, number: int) -> None:
        """A file is done, however much of it was read."""
        self.part_of(number, self._sizes[number])
