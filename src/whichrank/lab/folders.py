"""Folders that go with the command that made them, also if it is killed: a janitor of its own waits for its end.

The janitor of a lab begins and ends with that lab. These folders are there before it, between two labs and after them,
so the command has this one besides, from its first folder on. It holds one end of a pipe, over which it is told of
folders, and at the end of which it removes those that are left: nobody but the command has the other end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Final

_TRIES: Final = 10
_BETWEEN_S: Final = 1.0
"""What was at work in a folder ends with the lab, some seconds later, and may write until then."""
_pipe: int | None = None


def remove_if_killed(folder: Path) -> None:
    """From now on this folder, which this process has made, is removed when the process has gone."""
    _tell(folder, goes=True)


def keep(folder: Path) -> None:
    """It stays after all."""
    _tell(folder, goes=False)


def _tell(folder: Path, *, goes: bool) -> None:
    global _pipe
    if _pipe is None:
        _pipe = _hire()
    with contextlib.suppress(BrokenPipeError):  # somebody has killed the janitor
        os.write(_pipe, json.dumps([str(folder.absolute()), goes]).encode() + b"\n")


def _hire() -> int:
    """Start the janitor, which shares nothing with us that a signal to us would reach; our end of the pipe."""
    theirs, ours = os.pipe()
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    command = [sys.executable, "-P", "-m", "whichrank.lab.folders"]
    actions = [(os.POSIX_SPAWN_DUP2, theirs, 0), *null]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)
    os.close(theirs)
    return ours


def main() -> None:
    """Wait for the end of who has started us, and remove the folders of which it has told."""
    told = dict(json.loads(line) for line in sys.stdin.buffer)
    left = [Path(folder) for folder, goes in told.items() if goes and os.path.lexists(folder)]
    for _ in range(_TRIES if left else 0):
        for folder in left:
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_BETWEEN_S)


if __name__ == "__main__":
    main()
