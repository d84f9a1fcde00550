"""Asks something of a run that goes on, and waits for the answer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from whichrank.errors import IncompleteDataError, UsageError
from whichrank.ring.folder import job_folders
from whichrank.server.incidents_file import JOB_FILE, job_file
from whichrank.server.lines_file import Lines
from whichrank.server.place import absolute
from whichrank.server.requests import Requests

EVERY_S: Final = 0.1
"""Between two looks for the answer."""
TALK_EVERY_S: Final = 5.0
"""Between two words that it still waits."""


class Answer(Protocol):
    """What a run says to a request."""

    @property
    def request(self) -> str:
        """The id of what was asked."""


A = TypeVar("A", bound=Answer)


@dataclass(frozen=True)
class Sayings:
    """What is said while it waits, and when it was in vain.

    Attributes:
        ended: The run has ended.
        waits: There is no answer yet.
        other_asks: It waits for its turn.
        other_still_asks: It has waited for its turn long enough.
    """

    ended: str
    waits: str
    other_asks: str
    other_still_asks: str


def folder_of(named: Path | None, command: str) -> Path:
    """The folder of a run: the one that is named, or that of the newest job that runs here.

    Args:
        named: By the user.
        command: How to name one.

    Raises:
        UsageError: There is none.
    """
    if named is not None:
        if not (named / JOB_FILE).is_file():
            raise UsageError("this is no folder of a run", where=str(absolute(named)), mend=command)
        return named
    for folder in job_folders():
        owner = folder.owner()
        if owner is not None and owner.alive() and owner.output and (Path(owner.output) / JOB_FILE).is_file():
            return Path(owner.output)
    raise UsageError("no job runs here under `whichrank run`", mend=f"{command}  names the folder of one")


def ask_and_wait(
    folder: Path, requests: Requests[Any], request: msgspec.Struct, answers: Lines[A], patience_s: float,
    sayings: Sayings, talk: Callable[[str], None],
) -> A:  # fmt: skip
    """What a run says. Whoever leaves meanwhile, as by Ctrl-C, takes the request back.

    Args:
        folder: Of the run.
        requests: Where it is asked.
        request: What is wanted; it gets an id.
        answers: Where the answer will stand.
        patience_s: How long to wait for others who ask, and then for the answer.
        sayings: What is said meanwhile.
        talk: Told now and then that it still waits.

    Raises:
        UsageError: Nothing can be written there.
        IncompleteDataError: The run has ended, or does not answer.
    """
    request_id = secrets.token_hex(8)
    try:
        _ask_in_turn(folder, requests, msgspec.structs.replace(request, id=request_id), patience_s, sayings, talk)
        patience = _Patience(folder, patience_s, talk)
        while True:
            has_ended = patience.has_run_ended()  # first: what it has written at its end is read after that
            for answer in answers.read():
                if answer.request == request_id:
                    return answer
            if has_ended:
                raise IncompleteDataError(sayings.ended, where=str(absolute(folder)))
            patience.wait(sayings.waits, "the run has not answered")
    finally:
        requests.take_back(request_id)


def _ask_in_turn(
    folder: Path, requests: Requests[Any], request: msgspec.Struct, patience_s: float, sayings: Sayings,
    talk: Callable[[str], None],
) -> None:  # fmt: skip
    """Ask once nobody else does."""
    patience = _Patience(folder, patience_s, talk)
    while not patience.has_run_ended():
        try:
            requests.ask(request)
        except FileExistsError:
            patience.wait(sayings.other_asks, sayings.other_still_asks)
        except OSError as error:
            raise UsageError(f"the run cannot be asked: {error.strerror}", where=str(folder)) from error
        else:
            return
    raise IncompleteDataError(sayings.ended, where=str(absolute(folder)))


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
