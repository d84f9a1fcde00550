"""Switches the sensors of one process on: identity, c10d sensor (or its fallback), notes that outlive the process."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

from whichrank.native import load_core, on_ring
from whichrank.sensors import c10d, exceptions, garbage_collector, sent_signals, tester
from whichrank.sensors.identity import RANK_PID, identity_of
from whichrank.sensors.place import make_place


def enable() -> None:
    """Switch the sensors on. Called once per process, after `import torch`.

    Raises:
        NativeLibraryError: The core library is not installed or does not load.
        SensorError: The folder for rings is another user's.
    """
    make_place(os.environ["WHICHRANK_DIR"])
    directory = os.environ["WHICHRANK_DIR"].encode()
    identity = identity_of(os.environ, os.getpid())
    core = load_core()
    open_now = identity.rank >= 0
    if open_now:
        os.environ[RANK_PID] = str(os.getpid())
    try:
        c10d.switch_on(directory, identity, open_now)
    except Exception as error:
        from whichrank.sensors import fallback  # needs torch's Python side, which the C++ sensor does without

        fallback.switch_on(directory, identity, open_now, why=str(error))
    _unless_it_fails("times of garbage collection", garbage_collector.watch)
    core.wr_ring_close.restype = None
    atexit.register(core.wr_ring_close)
    _unless_it_fails("tests while training is paused", tester.watch)
    _unless_it_fails("signals that are sent", lambda: sent_signals.watch(Path(os.environ["WHICHRANK_DIR"])))
    note = on_ring(core, "wr_note_exception", ctypes.c_char_p)
    # Last, so that one is noted before the end.
    _unless_it_fails("exceptions", lambda: exceptions.watch(note, core.wr_ring_close))


def _unless_it_fails(what: str, switch_on: Callable[[], object]) -> None:
    """Switch one more sensor on. Where it fails that is said, and all others stay on."""
    try:
        switch_on()
    except Exception as error:
        print(f"whichrank: {what} are not noted in this process: {error}", file=sys.stderr)
