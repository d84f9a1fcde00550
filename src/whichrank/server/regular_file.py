"""Files that are read whatever lies at their path: a pipe there would keep us waiting for whoever writes to it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def open_regular(path: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a file for reading, without waiting.

    Args:
        path: Of the file.
        follow: Whether it may be a link.

    Raises:
        OSError: It cannot be opened, or it is no regular file.
        ValueError: No file is called like that.
    """
    with open(path, "rb", opener=_without_waiting if follow else _without_following) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        yield file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def _without_following(path: str, flags: int) -> int:
    return _without_waiting(path, flags | os.O_NOFOLLOW)
