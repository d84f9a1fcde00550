"""Being ended by a signal as by Ctrl-C: what was started is cleaned up first."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def leave_on_signals() -> None:
    """From now on SIGTERM and SIGHUP raise `SystemExit` with 128 and their number, so that `finally` is kept.

    A signal that is ignored (`nohup`) stays so. For the main thread of a command that owns its process.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


def _leave(number: int, _: FrameType | None) -> None:
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # once is enough: a second one must not cut the cleaning short
    sys.exit(128 + number)
