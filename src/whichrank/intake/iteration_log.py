"""Iteration times in a training log, as a series for each attempt of the job.

A log is read once, for all that is in it: what reads it for ranks reads through a `Tap`, which takes out the few lines
with an iteration time as the bytes go by.

Numbers of iterations rise. Where one falls to what was logged before, the job was started again. A line that comes a
little too late has a number that is missing so far. The same lines once more are a copy.
"""

from __future__ import annotations

import io
import re
from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, Final

import numpy as np

from whichrank.intake.iteration_lines import HINTS, PROGRAMS, Line, lines_in
from whichrank.intake.lines.encodings import BLOCK_BYTES
from whichrank.intake.lines.plain import plain_lines
from whichrank.intake.lines.prefixes import taken_off
from whichrank.model.iterations import Ints
from whichrank.model.logged_iterations import Attempt, LoggedIterations

LEAST_LINES: Final = 3
"""With an iteration time, that make a log: a text that explains one has fewer."""
MOST_LINE: Final = 1 << 16
MOST_VALUES: Final = 1 << 22
"""Of one writer; later ones are left out."""
MOST_WRITERS: Final = 256
COPIES_AMONG: Final = 8
"""Latest attempts, of which one may be a copy."""
LATE: Final = 4
"""Lines by which one may come too late."""
_ENDS: Final = re.compile(rb"[\r\n]")


class Tap(io.RawIOBase):
    """A stream that looks for iteration times in what is read through it.

    Args:
        stream: UTF-8 text.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream, self._kept = stream, b""
        self._found = _Found()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """As of any stream."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._see(data)
        return len(data)

    def buffered(self) -> io.BufferedReader:
        """The stream to be read from."""
        return io.BufferedReader(self, BLOCK_BYTES)

    def logged(self, where: str) -> LoggedIterations | None:
        """What was found, after all was read; None if that is nothing, or too little.

        Args:
            where: The file.
        """
        self._see(b"")
        return self._found.logged(where)

    def _see(self, data: bytes) -> None:
        """Take out the lines with a hint; what follows the last end of a line waits for its rest."""
        if data:
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            whole, kept = (self._kept + data[:end], data[end:]) if end else (b"", self._kept + data)
            self._kept = kept[-MOST_LINE:]
        else:
            whole, self._kept = self._kept, b""
        for hint in HINTS:
            at = whole.find(hint)
            while at >= 0:
                start = max(whole.rfind(b"\n", 0, at), whole.rfind(b"\r", 0, at)) + 1
                stop = _ENDS.search(whole, at)
                end = stop.start() if stop else len(whole)
                self._found.see(whole[max(start, at - MOST_LINE) : min(end, at + MOST_LINE)].decode("utf-8", "replace"))
                at = whole.find(hint, end)


@dataclass
class _Life:
    """Lines of one attempt, by iteration."""

    lines: dict[int, Line] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def take(self, line: Line) -> bool:
        """Whether a line belongs to this attempt; it is taken then, if it is not there yet."""
        number = line.number
        last = self.order[-1] if self.order else -1
        if number > last:
            self.order.append(number)
        elif number == last:
            return True  # another rank says the same, or a progress bar is drawn again
        elif number in self.lines or number < self.order[-min(LATE, len(self.order))]:
            return False
        else:
            insort(self.order, number)
        self.lines[number] = line
        return True

    def is_copy_of(self, other: _Life) -> bool:
        """Are all its lines also in the other one?"""
        return all(other.lines.get(number) == line for number, line in self.lines.items())


class _Found:
    """By writer, the attempts."""

    def __init__(self) -> None:
        self._lives: dict[tuple[int, int | None, str], list[_Life]] = {}
        self._count: Counter[tuple[int, int | None, str]] = Counter()

    def see(self, raw: str) -> None:
        """A line in which a hint stands."""
        for text in plain_lines(raw):
            who, _ = taken_off(text)
            for place, line in lines_in(text):
                writer = (place, who.task if who.rank is None else who.rank, who.host)
                if writer not in self._lives and len(self._lives) >= MOST_WRITERS:
                    continue
                lives = self._lives.setdefault(writer, [_Life()])
                self._count[writer] += 1
                if self._count[writer] <= MOST_VALUES and not lives[-1].take(line):
                    lives.append(_Life())
                    lives[-1].take(line)

    def logged(self, where: str) -> LoggedIterations | None:
        """The attempts of the program that is believed, and of its writer with the most lines."""
        writers = [writer for writer, count in self._count.items() if count >= LEAST_LINES]
        if not writers:
            return None
        best = min(writers, key=lambda writer: (writer[0], -self._count[writer]))
        lives: list[_Life] = []
        for life in self._lives[best]:
            if not any(life.is_copy_of(one) for one in lives[-COPIES_AMONG:]):
                lives.append(life)
        program = PROGRAMS[best[0]]
        return LoggedIterations(program.name, program.unit, tuple(map(_attempt, lives)), where)


def _attempt(life: _Life) -> Attempt:
    lines = [life.lines[number] for number in life.order]
    return Attempt(
        np.array([line.number for line in lines], np.int64), np.array([line.value for line in lines]),
        _without_gaps(np.array([line.batch for line in lines], np.int64)), tuple(line.at for line in lines),
    )  # fmt: skip


def _without_gaps(batch: Ints) -> Ints:
    """Batch sizes, with that of the line before where a line was cut before its own."""
    known = np.flatnonzero(batch)
    if not len(known):
        return batch
    return batch[known[np.maximum(np.searchsorted(known, np.arange(len(batch)), side="right") - 1, 0)]]
