"""What a checkpoint looks like on disk: one folder for each iteration, and in it a file that is written last."""

from __future__ import annotations

from typing import Final

FOLDER: Final = "WHICHRANK_CHECKPOINTS"
"""The variable that says where they are written."""
ABOUT: Final = "checkpoint.json"
"""Without it a checkpoint is not whole."""
_NAME: Final = "iteration-"
_MOST_DIGITS: Final = 18


def name_of(iterations: int) -> str:
    """Of the folder of a checkpoint.

    Args:
        iterations: That are done.
    """
    return f"{_NAME}{iterations}"


def iterations_of(name: str) -> int:
    """Iterations that are done, by the name of a folder; 0 if it is that of something else."""
    number = name.removeprefix(_NAME)
    is_one = number != name and number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
    return int(number) if is_one else 0
