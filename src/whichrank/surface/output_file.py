"""The file that a command is told to write: another one is not lost by it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from whichrank.errors import UsageError

ANOTHER = "-o FILE names another one"


def refuse_existing(path: Path) -> None:
    """Before anything is done for it.

    Raises:
        UsageError: There is something at this path.
    """
    if path.exists():
        raise UsageError(f"there is a file '{path}' already", mend=f"--force writes over it, {ANOTHER}")


def refuse_read(path: Path, read: Iterable[Path]) -> None:
    """Before anything is done for it: what a command reads is not written over, by force neither.

    Args:
        path: Where it is to write.
        read: Files that it reads, and folders of which it reads all files.

    Raises:
        UsageError: It is one of these.
    """
    if path.is_dir():
        raise UsageError(f"'{path}' is a folder", mend=f"-o {path / 'FILE'}")
    for source in read:
        for one in source.iterdir() if source.is_dir() else [source]:
            if path.exists() and one.exists() and path.samefile(one):
                raise UsageError(f"'{path}' is one of the files that are read", mend=ANOTHER)


def write_output(path: Path, data: bytes | Iterable[bytes]) -> int:
    """Write a file, piece by piece where it comes so; returns how many bytes it has.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        with path.open("wb") as file:
            return sum(file.write(piece) for piece in ([data] if isinstance(data, bytes) else data))
    except OSError as error:
        raise UsageError(f"'{path}' cannot be written: {error.strerror}", mend=ANOTHER) from error
