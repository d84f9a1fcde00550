"""Asks a run that goes on to act on what is slow, or to take back what was done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from whichrank.errors import IncompleteDataError
from whichrank.server.incidents_file import FILE_NAME, job_file, read_incidents
from whichrank.server.mitigations_file import MitigateAsked, Mitigated, mitigate_requests, mitigated_from_now_on
from whichrank.surface.asking import Sayings, ask_and_wait

PATIENCE_S: Final = 30.0
WRITTEN_S: Final = 3600.0
"""In which states are on disk: terabytes over a slow file system."""
SAYINGS: Final = Sayings(
    ended="the run has ended, nothing was changed",
    waits="the run looks at its latest iterations",
    other_asks="somebody else wants something of this run: this one waits for its turn",
    other_still_asks="somebody else still wants something of this run",
)

CHECKPOINT_SAYINGS: Final = Sayings(
    ended="the run has ended",
    waits="it waits until ranks have written their state",
    other_asks=SAYINGS.other_asks,
    other_still_asks=SAYINGS.other_still_asks,
)


def checkpoint(folder: Path, talk: Callable[[str], None]) -> str:
    """Have a job write its state now, if it has not ended; why it has not, empty if it has. See `ask_and_wait`."""
    if job_file(folder).ended is not None:
        return ""
    if any(one.kind == "hang" and one.status == "open" for one in read_incidents(folder / FILE_NAME).incidents):
        return "it hangs, and ranks write between two iterations"
    asked = MitigateAsked(what="checkpoint")
    answers = mitigated_from_now_on(folder)
    try:
        line = ask_and_wait(folder, mitigate_requests(folder), asked, answers, WRITTEN_S, CHECKPOINT_SAYINGS, talk)
    except IncompleteDataError as error:
        return error.what
    return line.problem


def mitigate(folder: Path, asked: MitigateAsked, talk: Callable[[str], None]) -> Mitigated:
    """What came of it; see `ask_and_wait`."""
    answers = mitigated_from_now_on(folder)
    return ask_and_wait(folder, mitigate_requests(folder), asked, answers, PATIENCE_S, SAYINGS, talk)
