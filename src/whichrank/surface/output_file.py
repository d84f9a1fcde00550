"""The file that a command is told to write: another one is not lost by it."""

from __future__ import annotations

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


def write_output(path: Path, data: bytes) -> None:
    """Write a file.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"'{path}' cannot be written: {error.strerror}", mend=ANOTHER) from error
