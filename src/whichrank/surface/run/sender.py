"""Who sent a signal: the terminal, to the whole foreground group, or a process, to us.

A handler in Python is not reported. `sigwaitinfo` says, but gets only signals that every thread of the process blocks.
So threads that libraries start on import are made to block them, the main thread does once the job, which would inherit
the mask, has been started, and a thread of ours waits. Where a thread escapes this, or a signal comes before, the
handler gets it, as if there were no `Sender`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Final

FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)


@contextlib.contextmanager
def kept_from_new_threads() -> Iterator[None]:
    """Threads that are started meanwhile never take a signal of the terminal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FROM_TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_in() -> None:
    """Signals of the terminal reach this thread."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FROM_TERMINAL)


def wait_for_signals(on_signal: Callable[[int, bool], None]) -> None:
    """From now on and for good, a thread takes these signals instead of the handlers.

    Signals that are ignored or blocked now stay so.

    Args:
        on_signal: Called in that thread with the number, and whether the terminal sent it.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    ours = [n for n in FROM_TERMINAL if n not in blocked and signal.getsignal(n) is not signal.SIG_IGN]
    if ours:
        signal.pthread_sigmask(signal.SIG_BLOCK, ours)
        threading.Thread(target=_wait, args=(ours, on_signal), name="whichrank-signals", daemon=True).start()


def _wait(numbers: list[signal.Signals], on_signal: Callable[[int, bool], None]) -> None:
    while True:
        info = signal.sigwaitinfo(numbers)
        on_signal(info.si_signo, info.si_code > 0)  # the kernel's own codes are above 0, those of kill() are not
