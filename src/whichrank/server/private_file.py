"""Folders and files that hold a job's commands, paths and host names: for their user alone, whatever the umask.

Folders that are there already stay as they are; the user may have shared them on purpose. A link is not followed and a
pipe is not waited for: in a folder that others may write to, either could have been put there by somebody else.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing; those that another process makes meanwhile are as good.

    Raises:
        OSError: It cannot be made, or something else is in its place.
    """
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileNotFoundError:
        make_private(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    except FileExistsError:
        if not folder.is_dir():
            raise


def open_private(path: Path, *, replace: bool = False) -> BinaryIO:
    """Open a file to append to it (it can be read, too), or emptied; one of ours becomes private if it was not.

    Raises:
        OSError: It cannot be opened, is a link, or is no regular file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, FILE_MODE)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & ~FILE_MODE:
            os.fchmod(fd, FILE_MODE)
        if replace:
            os.ftruncate(fd, 0)
        return os.fdopen(fd, "a+b")
    except BaseException:
        os.close(fd)
        raise


def write_private(path: Path, content: bytes) -> None:
    """Replace what a file holds.

    Raises:
        OSError: See `open_private`; or it cannot be written.
    """
    with open_private(path, replace=True) as file:
        file.write(content)
