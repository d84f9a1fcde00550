"""What intake makes of files: telemetry of a job, as an agent would have reported it, and what became of each file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from whichrank.model.logged_iterations import LoggedIterations
from whichrank.model.picture import Recorded
from whichrank.model.step_ops import StepOps
from whichrank.model.telemetry import Batch

UNKNOWN: Final = 0
"""In the place of the number of an attempt that is not known."""
State = Literal["read", "empty", "damaged", "ignored"]


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one file, or of a part of an archive.

    Attributes:
        path: As it is told to the user; of a part, `ARCHIVE:PART`.
        format: What it holds, "" if that is not known.
        state: Whether it was used.
        rank: Whose it is, as far as that is known.
        what: Half a sentence for people; empty if there is nothing to say.
    """

    path: str
    format: str
    state: State
    rank: int | None = None
    what: str = ""


@dataclass(frozen=True)
class Recording:
    """One job, up to the moment at which it was recorded.

    Attributes:
        job: A name for it.
        format: Of the files that it was made of.
        batches: What an agent beside each rank would have reported, in the order in which they are to be fed.
        now_s: When all of them are fed: seconds on the clock of the recording.
        utc_offset_s: From that clock to UTC; None where nothing says it.
        unread: Ranks of the job of which nothing could be read, and why.
        said: What logs say of ranks, in lines for people.
        about: What is known of how it was made.
        remarks: What else the user is to know of it, in sentences that begin small and have no full stop.
        left_open: Where nothing is found, why it may not show who waits for whom, a sentence like that; empty if nobody
            waits then.
        iterations: What a training log says of iteration times; None where there is none.
        most_known: The highest rank that any line mentions, where none says how many there are; -1: that is known.
        ops: What its workers do in each step, for a what-if analysis; None where the recording does not say it.
    """

    job: str
    format: str
    batches: tuple[Batch, ...]
    now_s: float
    utc_offset_s: float | None
    unread: dict[int, str]
    said: dict[int, tuple[str, ...]] = field(default_factory=dict)
    about: Recorded = field(default_factory=Recorded)
    remarks: tuple[str, ...] = ()
    left_open: str = ""
    ops: StepOps | None = None
    iterations: LoggedIterations | None = None
    most_known: int = -1


@dataclass(frozen=True)
class Attempt:
    """What some paths held of an attempt of the job before the last one.

    Attributes:
        number: Of the attempt, from 1; `UNKNOWN`: the recordings are of dumps that may be of any attempt.
        recordings: At least one.
    """

    number: int
    recordings: tuple[Recording, ...]


@dataclass(frozen=True)
class Intake:
    """All that some paths held.

    Attributes:
        recordings: Of the last attempt of the job that says anything, at least one.
        notes: A note for each file.
        number: Of that attempt, from 1, among those of which something was read.
        attempts: How many there were; one more than `number` where nothing is known of the last one.
        earlier: The attempts before that, the latest first; before them what is of an attempt that is not known.
    """

    recordings: tuple[Recording, ...]
    notes: tuple[Note, ...]
    number: int = 1
    attempts: int = 1
    earlier: tuple[Attempt, ...] = ()

    def title_of(self, number: int) -> str:
        """`attempt 2 of 3 (last)`; empty if there is one attempt only."""
        if number == UNKNOWN:
            return "dumps of an attempt that is not known"
        if self.attempts == 1 and not self.earlier:
            return ""
        return f"attempt {number} of {self.attempts}" + (" (last)" if number == self.attempts else "")
