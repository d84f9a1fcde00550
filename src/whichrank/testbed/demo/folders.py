"""Folders that go with the command that made them, also if it is killed: a janitor of its own waits for its end.

The janitor of a lab begins and ends with that lab. These folders are there before it, between two labs and after them,
so the command has this one besides, from its first folder on. It holds one end of a pipe, over which it is reported of
folders, and at the end of which it removes those that are left: nobody but the command has the other end.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_AWAY, _POLLS = 10, 120
"""Looks until which folders must have stayed away, and looks at most: what was at work in one ends with the lab, some
seconds later, and may write until then."""
_BETWEEN_S: Final = 1.0
_SHORT: Final = Path("/tmp")  # noqa: S108  # for its short path; what is made in it has a random name and is 0700
_LONGEST: Final = 95
"""Bytes of the path of a folder with a socket, which has 107 with its name (man 7 unix)."""
_pipe: int | None = None


def new_folder(prefix: str, *, has_socket: bool = False) -> Path:
    """A new folder for temporary files, 0700, that is removed when this process has gone.

    Args:
        prefix: Its name begins with it.
        has_socket: A unix socket is to be in it, so it is in /tmp if that of the user is too far down.

    Raises:
        OSError: There is no place for it.
    """
    name = f"{prefix}{secrets.token_hex(4)}"
    folder = Path(tempfile.gettempdir()) / name
    if has_socket and len(os.fsencode(folder)) > _LONGEST:
        folder = _SHORT / name
    _report(folder, goes=True)  # before it is there: we may be killed at any moment
    try:
        folder.mkdir(0o700)
    except OSError:
        keep(folder)
        raise
    return folder


def keep(folder: Path) -> None:
    """It stays after all."""
    _report(folder, goes=False)


def _report(folder: Path, *, goes: bool) -> None:
    global _pipe
    if _pipe is None:
        _pipe = _hire()
    with contextlib.suppress(BrokenPipeError):  # somebody has killed the janitor
        os.write(_pipe, json.dumps([str(folder.absolute()), goes]).encode() + b"\n")


def _hire() -> int:
    """Start the janitor, which shares nothing with us that a signal to us would reach; our end of the pipe."""
    theirs, ours = os.pipe()
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    command = [sys.executable, "-P", "-m", "whichrank.testbed.demo.folders"]
    actions = [(os.POSIX_SPAWN_DUP2, theirs, 0), *null]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)
    os.close(theirs)
    return ours


def main() -> None:
    """Wait for the end of who has started us, and remove the folders of which it has reported."""
    reported = dict(json.loads(line) for line in sys.stdin.buffer)
    _remove([Path(folder) for folder, goes in reported.items() if goes and os.path.lexists(folder)])


def _remove(folders: Sequence[Path]) -> None:
    """Until they stay away."""
    away = 0
    for _ in range(_POLLS if folders else 0):
        left = [folder for folder in folders if os.path.lexists(folder)]
        for folder in left:
            shutil.rmtree(folder, ignore_errors=True)
        away = 0 if left else away + 1
        if away == _AWAY:
            return
        time.sleep(_BETWEEN_S)


if __name__ == "__main__":
    main()
