"""`whichrank.phase("checkpoint")`: the user marks what a rank is doing.

A marked phase never raises an alert by time. It is safe to leave in a script: in a process that whichrank does not
watch it does nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from whichrank.native import loaded_core, on_ring

_open: list[str] = []


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Mark what this rank does until the block ends; phases may be nested.

    Args:
        name: A word such as `checkpoint` or `evaluation`; the first 31 bytes are kept.
    """
    _open.append(name)
    _publish(name)
    try:
        yield
    finally:
        _open.remove(name)
        _publish(_open[-1] if _open else "")


def _publish(name: str) -> None:
    core = loaded_core()
    if core is None:
        return
    on_ring(core, "wr_phase_set", ctypes.c_char_p)(name.encode())
