"""Switches the sensors of one process on: identity, c10d sensor (or its fallback), notes that outlive the process."""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType

from whichrank.sensors import c10d, collector
from whichrank.sensors.native import load_core, on_ring
from whichrank.sensors.place import make_place

RANK_PID = "WHICHRANK_RANK_PID"

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


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
    _note_exceptions(core)
    collector.watch()
    core.wr_ring_close.restype = None
    atexit.register(core.wr_ring_close)


def _note_exceptions(core: ctypes.CDLL) -> None:
    sys.excepthook = exception_hook(on_ring(core, "wr_note_exception", ctypes.c_char_p), sys.excepthook)


def exception_hook(note: Callable[[bytes], None], before: Hook) -> Hook:
    """A hook that writes an uncaught exception down, then lets the program's own hook do what it does.

    The interpreter keeps the exception as the last one before it calls the hook. A program that calls the hook itself,
    to print something, goes on, and its exception is not written down.
    """

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        try:
            if getattr(sys, "last_value", None) is value:
                note(exception_note(kind, value, trace))
        except Exception as error:
            print(f"whichrank: the exception was not noted: {error}", file=sys.stderr)
        before(kind, value, trace)

    return hook


def exception_note(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> bytes:
    """Type, first line of the message and place of an exception, at most 191 bytes; the end of a long path is kept."""
    last = traceback.extract_tb(trace)[-1:]
    place = f"{last[0].filename}:{last[0].lineno}".encode(errors="replace") if last else b""
    if len(place) > 80:
        tail = place[-77:]
        place = b"..." + tail[max(tail.find(b"/"), 0) :]
    lines = str(value).strip().splitlines() or [""]
    said = f"{kind.__name__}: {lines[0]}".encode(errors="replace")
    return said[: 187 - len(place)] + (b" at " + place if place else b"")
