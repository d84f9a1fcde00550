"""Asks a run that goes on for a validation, and waits for what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from whichrank.server.validations_file import Asked, Validated, requests, results_from_now_on
from whichrank.surface.asking import Sayings, ask_and_wait

COMMAND: Final = "whichrank validate RUN"
SAYINGS: Final = Sayings(
    ended="the run has ended, nothing was measured",
    waits="the ranks have not been measured yet",
    other_asks="somebody else asks this run for a validation: this one waits for its turn",
    other_still_asks="somebody else still asks this run for a validation",
)


def validate(folder: Path, asked: Asked, patience_s: float, talk: Callable[[str], None]) -> Validated:
    """What came of a validation; see `ask_and_wait`."""
    return ask_and_wait(folder, requests(folder), asked, results_from_now_on(folder), patience_s, SAYINGS, talk)
