"""Could another user replace what we are about to use? Asked of the folder of rings and of the cache of built sensors.

A path is safe if no user but root and ourselves can rename or write anything on the way to it: every folder from the
root on belongs to one of the two, and where others may write, the sticky bit keeps them from what is not theirs. A
link is as safe as the folder that it lies in, and where it leads is looked at in the same way.

Example: `/dev/shm` belongs to root and has mode 1777, so `/dev/shm/whichrank` is safe if root or we have made it. If
another user has, he can put another folder in its place at any time.

Needs nothing but `os`: it is asked in every rank, before anything of ours is loaded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40
_WHOLE_USERS = b"4294967295"


def unsafe_folder(path: str, *, shared: bool) -> str:
    """Why others could replace this folder or what is in it; empty if they cannot, or if it is not there yet.

    Args:
        path: The folder. What of it is missing will be ours.
        shared: Others may put things of their own into it, beside ours (the sticky bit).
    """
    steps = list(_steps(os.path.abspath(path)))  # noqa: PTH100  # pathlib is not loaded for this
    is_there = os.path.lexists(path)
    for number, (place, status) in enumerate(steps, 1):
        is_last = is_there and number == len(steps)
        if why := _unsafe_step(place, status, is_above=not is_last):
            return why
        if is_last and not shared and status.st_mode & _OTHERS_WRITE:
            return f"other users can write to {place}"
    return ""


def unsafe_file(path: str) -> str:
    """Why others could have written this file, or could replace it; empty if they cannot.

    Raises:
        OSError: It is not there.
    """
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is no regular file"
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to user {status.st_uid}"
    if status.st_mode & _OTHERS_WRITE:
        return f"other users can write to {path}"
    return unsafe_folder(os.path.dirname(path), shared=False)  # noqa: PTH120


def _unsafe_step(place: str, status: os.stat_result, *, is_above: bool) -> str:
    if status.st_uid not in (0, os.geteuid()) and not (is_above and _is_unmapped(status.st_uid)):
        return f"{place} belongs to user {status.st_uid}"
    if stat.S_ISLNK(status.st_mode):
        return "" if is_above else f"{place} is a link that leads nowhere"
    if not stat.S_ISDIR(status.st_mode):
        return f"{place} is no folder"
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        return f"other users can replace what is in {place}"
    return ""


def _steps(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every folder and link from the root to this path, links followed, as far as it exists."""
    links, place, left = 0, "/", [part for part in path.split("/") if part]
    yield place, os.lstat(place)
    while left:
        part = left.pop(0)
        if part == "..":
            place = os.path.dirname(place)  # noqa: PTH120
            continue
        below = os.path.join(place, part)  # noqa: PTH118
        try:
            status = os.lstat(below)
        except OSError:
            return
        yield below, status
        if not stat.S_ISLNK(status.st_mode):
            place = below
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        target = os.readlink(below)  # noqa: PTH115
        place = "/" if target.startswith("/") else place
        left = [part for part in target.split("/") if part not in ("", ".")] + left


def _is_unmapped(uid: int) -> bool:
    """Whether this stands for all users that our user namespace does not know, of whom the real root is one.

    A container without privileges sees /dev/shm of the machine as theirs.
    """
    try:
        with open("/proc/self/uid_map", "rb") as file:  # noqa: PTH123
            is_whole = _WHOLE_USERS in file.read(4096).split()
        with open("/proc/sys/kernel/overflowuid", "rb") as file:  # noqa: PTH123
            return not is_whole and uid == int(file.read(32))
    except (OSError, ValueError):
        return False
