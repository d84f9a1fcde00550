"""The configuration of a job that a user names: it is read, and nothing of it is run."""

from __future__ import annotations

from pathlib import Path

from whichrank.errors import UsageError
from whichrank.stage.config_file import MOST_CHARACTERS, Configured, configured


def configuration_at(path: Path) -> Configured:
    """What a file says of a job's layout. Of a long file, such as a log, only the head is read.

    Raises:
        UsageError: It cannot be read, or says nothing of a layout.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no file", mend="--layout FILE")
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            text = file.read(MOST_CHARACTERS)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", mend="--layout FILE") from error
    return configured(text)
