"""Being ended by a signal as by Ctrl-C: what was started is cleaned up first."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def leave_on_signals() -> None:
    """From now on SIGTERM and SIGHUP raise `SystemExit` with 128 and their number, so that `finally` is kept.

    A signal that is ignored (`nohup`) stays so. For the main thread of a command that owns its process.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Inside, Ctrl-C ends the process: around imports, which may swallow the exception that it is else.

    A Ctrl-C that is ignored, or that has a handler of its own, stays so. For the main thread of a command.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, _: FrameType | None) -> None:
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # once is enough: a second one must not cut the cleaning short
    sys.exit(128 + number)
