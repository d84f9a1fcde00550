"""One recording of each attempt of a job, the last one first, and what is to be said of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from whichrank.errors import WhichrankError
from whichrank.intake.attempts import Attempts
from whichrank.intake.recording import UNKNOWN, Attempt, Intake, Note, Recording

OF_LAST_ATTEMPT: Final = (
    "this is about the last attempt of the job that says anything; what earlier ones wrote is left out"
)
STARTED_AGAIN: Final = "the job was started again after this, and what was read does not say whether that attempt hangs"
OF_UNKNOWN_ATTEMPT: Final = "the log is of several attempts, and nothing says of which one these dumps are"
DUMPS_LEFT_OUT: Final = (
    "dumps are left out: the log is of several attempts, nothing says of which one they are, and they are of several"
)


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
    apart = _apart(found, recordings_of, is_needed=not lives)
    if not lives:
        return Intake(tuple(apart), notes)
    is_started_again = found.is_started_again or not told[0]
    remarks: tuple[str, ...] = (OF_LAST_ATTEMPT,) if found.has_more or None in told else ()
    remarks += (STARTED_AGAIN,) if is_started_again else ()
    remarks += (DUMPS_LEFT_OUT,) if found.unknown and not apart else ()
    last, *earlier = lives
    return Intake(
        tuple(replace(one, remarks=(*one.remarks, *remarks)) for one in last), notes, len(lives),
        len(lives) + is_started_again,
        (Attempt(UNKNOWN, tuple(apart)),) * bool(apart)
        + tuple(
            Attempt(number, tuple(replace(one, job=f"{one.job}-attempt-{number}") for one in recordings))
            for number, recordings in zip(range(len(earlier), 0, -1), earlier, strict=True)
        ),
    )  # fmt: skip


def _apart(
    found: Attempts, recordings_of: Callable[[Mapping[int, object]], list[Recording]], *, is_needed: bool
) -> list[Recording]:
    """The recordings of dumps of an attempt that is not known.

    Args:
        found: What was read, by attempt.
        recordings_of: What is of an attempt makes these.
        is_needed: There is nothing else.

    Raises:
        WhichrankError: They cannot be put together, and there is nothing else.
    """
    if not found.unknown:
        return []
    try:
        recordings = recordings_of(found.unknown)
    except WhichrankError:
        if is_needed:
            raise
        return []
    return [replace(one, job=f"{one.job}-dumps", remarks=(*one.remarks, OF_UNKNOWN_ATTEMPT)) for one in recordings]
