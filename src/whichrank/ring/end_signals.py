"""Signals that ask a job to end, kept beside its rings.

`whichrank run` stands between a terminal or a scheduler and the launcher, so it gets SIGINT, SIGTERM or SIGHUP before
any rank ends because of it. It writes each down, with its time, into a file of the job's folder. The agent of the node
reads the file before it looks at processes: whoever hears of an end has heard of the signal that led to it. So it goes
the way of all telemetry, over the network and onto a tape.

A launcher that gets a signal itself passes it on to its ranks. Where it is a Python program with our sensors, that is
written down too, into a file of its own: which process was sent which signal. A rank that catches it and then exits
with a code of its own is ended by its launcher as much as one that the signal kills.

Each line holds the number of the signal, its time in ns of CLOCK_MONOTONIC, the pid or process group that it was sent
to, 0 for the job as a whole, and the pid of whoever writes it: a rank that ends its own launcher is not excused by it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final, NamedTuple

FILE_NAME: Final = "signals"
SENT_FILE_NAME: Final = "signals-sent"
FILE_NAMES: Final = (FILE_NAME, SENT_FILE_NAME)
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Each asks the whole job to end; a program may catch all of them."""
_MOST_BYTES: Final = {FILE_NAME: 4096, SENT_FILE_NAME: 1 << 20}
"""Whoever holds Ctrl-C down fills no memory: what comes after says nothing new. Programs end many helpers."""


class EndSignal(NamedTuple):
    """One signal that reached the run, or that was sent to a process of the job."""

    name: str
    """`SIGINT`."""
    at_ns: int
    """CLOCK_MONOTONIC."""
    target: int
    """The process, or process group, that it was sent to; 0 for the whole job."""
    sender: int
    """The process that wrote it down."""


def write_end_signal(folder: Path, number: int, target: int = 0) -> None:
    """Write down that this signal has come now, or is about to be sent. It is one short write, and it never raises.

    Args:
        folder: The job's folder.
        number: Of the signal.
        target: The process, or process group, that it is sent to; 0 for the whole job.
    """
    line = f"{int(number)} {time.monotonic_ns()} {target} {os.getpid()}\n".encode()
    name = SENT_FILE_NAME if target else FILE_NAME
    with contextlib.suppress(OSError):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < _MOST_BYTES[name]:
                os.write(file, line)
        finally:
            os.close(file)


class EndSignals:
    """Reads the signals of one folder as they come.

    Args:
        folder: The job's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._read = {folder / name: 0 for name in FILE_NAMES}

    def news(self) -> list[EndSignal]:
        """Those that have come since this was last asked; a file that has not grown is not read."""
        return [reported for path in self._read for line in self._lines(path) if (reported := _parsed(line))]

    def _lines(self, path: Path) -> list[bytes]:
        try:
            if path.stat().st_size <= self._read[path]:
                return []
            content = path.read_bytes()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        lines, self._read[path] = whole[self._read[path] :].splitlines(), len(whole)
        return lines


def _parsed(line: bytes) -> EndSignal | None:
    words = line.split()
    if len(words) != 4 or not all(word.isdigit() for word in words) or int(words[0]) not in END_SIGNALS:
        return None
    return EndSignal(signal.Signals(int(words[0])).name, int(words[1]), int(words[2]), int(words[3]))
