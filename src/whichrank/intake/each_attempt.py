"""One recording of each attempt of a job, the last one first, and what is to be said of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from whichrank.errors import WhichrankError
from whichrank.intake.attempts import Attempts
from whichrank.intake.recording import Attempt, Intake, Note, Recording

OF_LAST_ATTEMPT: Final = (
    "this is about the last attempt of the job that says anything; what earlier ones wrote is left out"
)
STARTED_AGAIN: Final = "the job was started again after this, and what was read does not say whether that attempt hangs"


def intake_of(
    found: Attempts, recordings_of: Callable[[Mapping[int, object]], list[Recording]], notes: tuple[Note, ...]
) -> Intake:
    """The recordings of all attempts. An attempt that gives none is not counted.

    That what belongs to an earlier attempt cannot be put together does not hide the last one.

    Args:
        found: What was read, by attempt.
        recordings_of: What is of an attempt makes these.
        notes: Of all files.

    Returns:
        Without a recording if no attempt gives any.

    Raises:
        WhichrankError: What is of the last attempt that says anything cannot be put together.
    """
    told: list[list[Recording] | None] = []
    for contents in reversed(found.contents):
        try:
            told.append(recordings_of(contents))
        except WhichrankError:
            if not any(told):
                raise
            told.append(None)
    lives = [recordings for recordings in told if recordings]
    if not lives:
        return Intake((), notes)
    is_started_again = found.is_started_again or not told[0]
    remarks: tuple[str, ...] = (OF_LAST_ATTEMPT,) if found.has_more or None in told else ()
    remarks += (STARTED_AGAIN,) if is_started_again else ()
    last, *earlier = lives
    return Intake(
        tuple(replace(one, remarks=(*one.remarks, *remarks)) for one in last), notes, len(lives),
        len(lives) + is_started_again,
        tuple(
            Attempt(number, tuple(replace(one, job=f"{one.job}-attempt-{number}") for one in recordings))
            for number, recordings in zip(range(len(earlier), 0, -1), earlier, strict=True)
        ),
    )  # fmt: skip
