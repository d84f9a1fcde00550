"""What a watched process is given: the job's name, the folder for its ring, and the preloaded socket sensor."""

from __future__ import annotations

import os
import shlex
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from whichrank.errors import NativeLibraryError
from whichrank.model.checkpoint import FOLDER as CHECKPOINTS
from whichrank.native import SOCKET, native_path
from whichrank.ring.folder import JobFolder
from whichrank.server.place import absolute

JOB, FOLDER, CONNECT, DISABLE = "WHICHRANK_JOB", "WHICHRANK_DIR", "WHICHRANK_CONNECT", "WHICHRANK_DISABLE"
PRELOAD = "LD_PRELOAD"
RANK_PID = "WHICHRANK_RANK_PID"
"""Set by the first process of a rank for its helpers; a job that is started inside a rank has ranks of its own."""


def new_job_name() -> str:
    """A name that no other job of this user has: the time, the host and our pid."""
    host = "".join(c for c in socket.gethostname().split(".")[0] if c.isascii() and (c.isalnum() or c == "-"))[:24]
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{host or 'node'}-{os.getpid()}"


def additions(folder: JobFolder, environ: Mapping[str, str], checkpoints: str | None = None) -> dict[str, str]:
    """Variables that differ from `environ` in a watched process.

    Args:
        folder: Of the job.
        environ: Of whoever starts it.
        checkpoints: Where it writes its state when somebody asks for it.
    """
    added = {JOB: folder.job, FOLDER: str(absolute(folder.path))}
    if checkpoints:
        added[CHECKPOINTS] = str(absolute(Path(checkpoints)))
    if preload := with_socket_sensor(environ.get(PRELOAD, "")):
        added[PRELOAD] = preload
    return added


def with_socket_sensor(preload: str) -> str:
    """The value of LD_PRELOAD with the socket sensor behind what is there; unchanged if the sensor is not installed."""
    try:
        library = str(native_path(SOCKET))
    except NativeLibraryError:
        return preload
    if any(c in library for c in " :\t"):  # the loader splits there and has no quotes
        return preload
    present = preload.replace(":", " ").split()
    return preload if library in present else ":".join([*present, library])


def exports(variables: Mapping[str, str]) -> str:
    """The variables as lines for `eval` in a POSIX shell."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def is_off(environ: Mapping[str, str]) -> bool:
    """Whether the user turned everything off."""
    return environ.get(DISABLE) == "1"


def output_folder(named: str | None, job: str) -> Path:
    """Where a run writes."""
    return Path(named) if named else Path("whichrank-out") / job
