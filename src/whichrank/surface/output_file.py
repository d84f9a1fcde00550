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
