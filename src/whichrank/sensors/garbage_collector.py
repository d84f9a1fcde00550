"""Tells the ring how long Python's garbage collector has kept this process.

The youngest generation is collected often and in microseconds: it is left out, at the cost of one comparison.
"""

from __future__ import annotations

import ctypes
import gc
from time import monotonic_ns

from whichrank.native import load_core, on_ring


def watch() -> None:
    """Add up the time of all collections of older generations from now on.

    Raises:
        NativeLibraryError: The core library is not there.
    """
    collected = on_ring(load_core(), "wr_collected", ctypes.c_uint64)
    began_ns = 0

    def around(phase: str, info: dict[str, int]) -> None:
        nonlocal began_ns
        if not info["generation"]:
            return
        if phase == "start":
            began_ns = monotonic_ns()
        elif began_ns:
            collected(monotonic_ns() - began_ns)
            began_ns = 0

    gc.callbacks.append(around)
