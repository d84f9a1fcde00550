"""Signals that ask a job to end, kept beside its rings.

`whichrank run` stands between a terminal or a scheduler and the launcher, so it gets SIGINT, SIGTERM or SIGHUP before
any rank ends because of it. It writes each down, with its time, into a file of the job's folder. The agent of the node
reads the file before it looks at processes: whoever hears of an end has heard of the signal that led to it. So it goes
the way of all telemetry, over the network and onto a tape.

Each line holds the number of the signal and its time in ns of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final, NamedTuple

FILE_NAME: Final = "signals"
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Each asks the whole job to end; a program may catch all of them."""
_MOST_BYTES: Final = 4096
"""Whoever holds Ctrl-C down fills no memory: what comes after says nothing new."""


class EndSignal(NamedTuple):
    """One signal that reached the run."""

    name: str
    """`SIGINT`."""
    at_ns: int
    """CLOCK_MONOTONIC."""


def write_end_signal(folder: Path, number: int) -> None:
    """Write down that this signal has come now. For a signal handler: it is one short write, and it never raises."""
    line = f"{int(number)} {time.monotonic_ns()}\n".encode()
    with contextlib.suppress(OSError):
        file = os.open(folder / FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < _MOST_BYTES:
                os.write(file, line)
        finally:
            os.close(file)


class EndSignals:
    """Reads the signals of one folder as they come.

    Args:
        folder: The job's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._read = 0

    def news(self) -> list[EndSignal]:
        """Those that have come since this was last asked; a file that has not grown is not read."""
        try:
            if self._path.stat().st_size <= self._read:
                return []
            content = self._path.read_bytes()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        lines, self._read = whole[self._read :].splitlines(), len(whole)
        return [told for line in lines if (told := _parsed(line))]


def _parsed(line: bytes) -> EndSignal | None:
    words = line.split()
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[0]) not in END_SIGNALS:
        return None
    return EndSignal(signal.Signals(int(words[0])).name, int(words[1]))
