"""Switches the sensors of one process on: identity, c10d sensor (or its fallback), notes that outlive the process."""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from whichrank.sensors import c10d, collector, exceptions, sent_signals
from whichrank.sensors.native import load_core, on_ring
from whichrank.sensors.place import make_place

RANK_PID = "WHICHRANK_RANK_PID"


class Identity(ctypes.Structure):
    """`wr_identity`: what the environment says of this process; -1 where it says nothing."""

    _fields_ = (
        ("rank", ctypes.c_int32),
        ("local_rank", ctypes.c_int32),
        ("world_size", ctypes.c_int32),
        ("local_world_size", ctypes.c_int32),
        ("restart_count", ctypes.c_int32),
        ("host", ctypes.c_char_p),
        ("job", ctypes.c_char_p),
    )


def identity_of(environ: Mapping[str, str], pid: int) -> Identity:
    """Rank and place from the variables that torchrun sets; none for a helper process of a rank."""

    def number(name: str, default: int) -> int:
        text = environ.get(name, "")
        return int(text) if text.isdigit() else default

    helper = environ.get(RANK_PID, str(pid)) != str(pid)
    return Identity(
        -1 if helper else number("RANK", -1),
        -1 if helper else number("LOCAL_RANK", -1),
        number("WORLD_SIZE", -1),
        number("LOCAL_WORLD_SIZE", -1),
        number("TORCHELASTIC_RESTART_COUNT", 0),
        socket.gethostname().encode()[:63],
        environ.get("WHICHRANK_JOB", "").encode()[:63],
    )


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
    collector.watch()
    core.wr_ring_close.restype = None
    atexit.register(core.wr_ring_close)
    sent_signals.watch(Path(os.environ["WHICHRANK_DIR"]))
    exceptions.watch(on_ring(core, "wr_note_exception", ctypes.c_char_p))  # behind, so that it is told before the end
