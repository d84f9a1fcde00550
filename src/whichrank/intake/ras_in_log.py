"""Answers of NCCL's RAS in the middle of a log, such as somebody has pasted there while the job hung."""

from __future__ import annotations

from typing import Final

from whichrank.errors import FormatError
from whichrank.intake.ras import Ras
from whichrank.intake.ras_text import read_ras_text

HINT: Final = "Job summary"
LINES: Final = 400
"""Behind the first one of an answer that may be of it."""
MOST_BYTES: Final = 1 << 22


class RasInLog:
    """The lines of a log that may be of an answer of RAS."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._left = self._size = 0

    def see(self, line: str) -> None:
        """Any line; those behind the begin of an answer are kept."""
        if line.strip() == HINT:
            self._left = LINES
        if self._left and self._size < MOST_BYTES:
            self._left -= 1
            self._size += len(line) + 1
            self._lines.append(line)

    def polls(self) -> tuple[Ras, ...]:
        """What the answers say, one look each; none where there is no answer."""
        if not self._lines:
            return ()
        try:
            return read_ras_text("\n".join(self._lines).encode()).polls
        except FormatError:
            return ()
