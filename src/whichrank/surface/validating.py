"""Asks a run that goes on for a validation, and waits for what comes of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from whichrank.errors import IncompleteDataError, UsageError
from whichrank.ring.folder import job_folders
from whichrank.server.incidents_file import JOB_FILE
from whichrank.server.place import absolute
from whichrank.server.validations_file import Asked, Validated, ask, results_in

EVERY_S: Final = 0.1
"""Between two looks for the result."""
TALK_EVERY_S: Final = 5.0
"""Between two words that it still waits."""


def folder_of(named: Path | None) -> Path:
    """The folder of a run: the one that is named, or that of the newest job that runs here.

    Raises:
        UsageError: There is none.
    """
    if named is not None:
        if not (named / JOB_FILE).is_file():
            raise UsageError("this is no folder of a run", where=str(absolute(named)), mend="whichrank validate RUN")
        return named
    for folder in job_folders():
        owner = folder.owner()
        if owner is not None and owner.alive() and owner.output and (Path(owner.output) / JOB_FILE).is_file():
            return Path(owner.output)
    raise UsageError("no job runs here under `whichrank run`", mend="whichrank validate RUN  names the folder of one")


def ask_and_wait(folder: Path, asked: Asked, patience_s: float, talk: Callable[[str], None]) -> Validated:
    """What came of a validation.

    Args:
        folder: Of the run.
        asked: What is wanted.
        patience_s: How long to wait for it.
        talk: Told now and then that it still waits.

    Raises:
        UsageError: Nothing can be written there.
        IncompleteDataError: The run does not answer, or its answer cannot be read.
    """
    asked = msgspec.structs.replace(asked, id=secrets.token_hex(8))
    try:
        ask(folder, asked)
    except OSError as error:
        raise UsageError(f"the run cannot be asked: {error.strerror}", where=str(folder)) from error
    deadline_s, said_s = time.monotonic() + patience_s, time.monotonic()
    while time.monotonic() < deadline_s:
        for result in results_in(folder):
            if result.asked.id == asked.id:
                return result
        if time.monotonic() - said_s > TALK_EVERY_S:
            said_s = time.monotonic()
            talk("the ranks have not been measured yet")
        time.sleep(EVERY_S)
    raise IncompleteDataError(
        "the run has not answered",
        where=str(absolute(folder)),
        mend="see whether it still runs: whichrank watch",
    )
