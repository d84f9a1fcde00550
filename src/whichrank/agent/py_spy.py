"""py-spy, run to read the stacks of a process, or to sample them without pausing it.

`subprocess` takes 1 MiB, so it is imported when py-spy is wanted: in the thread that waits for it, so that a file
system that hangs does not hold up the agent.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 5.0
MOST_BYTES: Final = 1 << 22
"""Of what py-spy writes, read at most."""
_LINE: Final = re.compile(r"^thread \((\w+)\)(?:: )?(.*) (\d+)$")


def program() -> str | None:
    """The program: beside this Python, else on the PATH."""
    import shutil

    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")


def samples(pid: int, seconds: float, rate: int, *options: str) -> list[tuple[int, list[str], int]]:
    """What the threads of a process are found in.

    Args:
        pid: Process.
        seconds: For how long, from the first sample on.
        rate: Samples per second.
        options: More of `py-spy record`.

    Returns:
        Thread, its frames, innermost last, and the number of samples; nothing if py-spy cannot read the process.
    """
    found = program()
    if found is None:
        return []
    # If this process is killed, py-spy ends by itself, and a file without a name is not left behind.
    with os.fdopen(os.memfd_create("py-spy"), "rb") as file:
        longest = str(math.ceil(seconds) + 1)
        command = [found, "record", "--pid", str(pid), "--threads", "--nonblocking", *options, "--duration", longest]
        command += ["--rate", str(rate), "--format", "raw", "--output", f"/proc/self/fd/{file.fileno()}"]
        _run(command, seconds, file.fileno())
        return list(_parsed(file.read(MOST_BYTES).decode(errors="replace")))


def _parsed(text: str) -> Iterator[tuple[int, list[str], int]]:
    for line in text.splitlines():
        if match := _LINE.match(line):
            thread, frames, count = match.groups()
            with contextlib.suppress(ValueError):
                yield int(thread, 0), frames.split(";"), int(count)


def _run(command: list[str], seconds: float, output: int) -> None:
    """Run py-spy until it has sampled for `seconds`, and end it as Ctrl-C does: it writes what it has.

    It says when it begins, which on a busy machine is long after it was started.
    """
    import subprocess

    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, pass_fds=(output,))
    except OSError:
        return
    with process:
        assert process.stdout is not None
        select.select([process.stdout], [], [], TIMEOUT_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
