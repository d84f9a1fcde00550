"""Asks a run that goes on to act on what is slow, or to take back what was done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from whichrank.server.mitigations_file import MitigateAsked, Mitigated, mitigate_requests, mitigated_from_now_on
from whichrank.surface.asking import Sayings, ask_and_wait

PATIENCE_S: Final = 30.0
SAYINGS: Final = Sayings(
    ended="the run has ended, nothing was changed",
    waits="the run looks at its latest iterations",
    other_asks="somebody else wants something of this run: this one waits for its turn",
    other_still_asks="somebody else still wants something of this run",
)


def mitigate(folder: Path, asked: MitigateAsked, talk: Callable[[str], None]) -> Mitigated:
    """What came of it; see `ask_and_wait`."""
    answers = mitigated_from_now_on(folder)
    return ask_and_wait(folder, mitigate_requests(folder), asked, answers, PATIENCE_S, SAYINGS, talk)
