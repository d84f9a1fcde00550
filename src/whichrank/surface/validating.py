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
from whichrank.server.incidents_file import JOB_FILE, job_file
from whichrank.server.place import absolute
from whichrank.server.validations_file import Asked, NewResults, Validated, ask, take_back

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
    """What came of a validation. Whoever leaves meanwhile, as by Ctrl-C, takes the request back.

    Args:
        folder: Of the run.
        asked: What is wanted.
        patience_s: How long to wait for others who ask, and then for the result.
        talk: Told now and then that it still waits.

    Raises:
        UsageError: Nothing can be written there.
        IncompleteDataError: The run has ended, or does not answer.
    """
    asked = msgspec.structs.replace(asked, id=secrets.token_hex(8))
    results = NewResults(folder)
    try:
        _ask_in_turn(folder, asked, _Patience(folder, patience_s, talk))
        patience = _Patience(folder, patience_s, talk)
        while True:
            has_ended = patience.has_run_ended()  # first: what it has written at its end is read after that
            for result in results.read():
                if result.asked.id == asked.id:
                    return result
            if has_ended:
                raise IncompleteDataError("the run has ended, nothing was measured", where=str(absolute(folder)))
            patience.wait("the ranks have not been measured yet", "the run has not answered")
    finally:
        take_back(folder, asked.id)


def _ask_in_turn(folder: Path, asked: Asked, patience: _Patience) -> None:
    """Ask once nobody else does."""
    while not patience.has_run_ended():
        try:
            ask(folder, asked)
        except FileExistsError:
            patience.wait(
                "somebody else asks this run for a validation: this one waits for its turn",
                "somebody else still asks this run for a validation",
            )
        except OSError as error:
            raise UsageError(f"the run cannot be asked: {error.strerror}", where=str(folder)) from error
        else:
            return
    raise IncompleteDataError("the run has ended, nothing was measured", where=str(absolute(folder)))


class _Patience:
    """Waits for a run for so long.

    Args:
        folder: Of the run.
        patience_s: How long.
        talk: Told now and then that it waits.
    """

    def __init__(self, folder: Path, patience_s: float, talk: Callable[[str], None]) -> None:
        self._folder, self._talk = folder, talk
        self._deadline_s, self._said_s = time.monotonic() + patience_s, time.monotonic()

    def has_run_ended(self) -> bool:
        """Whether the run has ended, or was killed on this machine."""
        if job_file(self._folder).ended is not None:
            return True
        owners = [owner for folder in job_folders() if (owner := folder.owner()) and owner.output]
        ours = [owner for owner in owners if Path(owner.output) == absolute(self._folder)]
        return bool(ours) and not any(owner.alive() for owner in ours)

    def wait(self, meanwhile: str, at_last: str) -> None:
        """A moment.

        Args:
            meanwhile: What is said now and then.
            at_last: What is said when it was long enough.

        Raises:
            IncompleteDataError: It was.
        """
        now_s = time.monotonic()
        if now_s > self._deadline_s:
            raise IncompleteDataError(
                at_last, where=str(absolute(self._folder)), mend="see whether it still runs: whichrank watch"
            )
        if now_s - self._said_s > TALK_EVERY_S:
            self._said_s = now_s
            self._talk(meanwhile)
        time.sleep(EVERY_S)
