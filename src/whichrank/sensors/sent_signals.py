"""Writes down which signals this process sends to others to end them.

A launcher that is asked to end passes the signal on: `torchrun`, `multiprocessing` and `subprocess` all call `os.kill`
or `os.killpg`. A rank that catches the signal exits seconds later with a code of its own, and nothing else says that
it was asked to. The functions stay what they are for their callers.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

from whichrank.ring.end_signals import END_SIGNALS, write_end_signal


def watch(folder: Path) -> None:
    """Write down from now on what this process sends.

    Args:
        folder: The job's folder.
    """
    os.kill = _reporting(os.kill, folder)
    os.killpg = _reporting(os.killpg, folder)


def _reporting(real: Callable[[int, int], None], folder: Path) -> Callable[[int, int], None]:
    @functools.wraps(real)
    def reporting(target: int, number: int, /) -> None:
        if number in END_SIGNALS and target > 1 and target != os.getpid():
            write_end_signal(folder, number, target)
        real(target, number)

    reporting.__module__ = "os"  # where pickle looks for it, which sends functions to other processes
    return reporting
