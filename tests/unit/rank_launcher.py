"""Starts a rank and notices its end as late as torchrun does.

Run as a program: CODE COMMAND... The command is reported `exit CODE` once an agent holds a pidfd of it, and after half
a minute in any case. With `-` for CODE its standard input is left as it is.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

POLL_S = 0.1
PATIENCE_S = 120.0


def watches() -> set[tuple[int, int]]:
    """Which process has a pidfd of which other one, as an agent has of its ranks: from then on it sees how they end."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if "pidfd" in str(link.readlink()):
                said = (link.parents[1] / "fdinfo" / link.name).read_text()
                found.update((int(link.parts[2]), int(pid)) for pid in re.findall(r"^Pid:\t(\d+)$", said, re.MULTILINE))
    return found


def main(code: str, command: list[str]) -> None:
    """Start the command, end it, and look whether it has ended ten times a second."""
    process = subprocess.Popen(command, stdin=None if code == "-" else subprocess.PIPE, text=True)
    if process.stdin is not None:
        until = time.monotonic() + PATIENCE_S
        while process.pid not in {pid for _, pid in watches()} and time.monotonic() < until:
            time.sleep(POLL_S)
        process.stdin.write(f"exit {code}\n")
        process.stdin.flush()
    while process.poll() is None:
        time.sleep(POLL_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
