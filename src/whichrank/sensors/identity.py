"""What the environment says of a process: its rank, its place, and whether it is a helper of a rank."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Mapping

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
