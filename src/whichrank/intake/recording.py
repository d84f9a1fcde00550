"""What intake makes of files: telemetry of one job at one moment, and what became of each file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from whichrank.model.telemetry import Batch

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
    """One job at one moment.

    Attributes:
        job: A name for it.
        batches: What an agent beside each rank would have told, in the order in which they are to be fed.
        now_s: When all of them are fed: seconds on the clock of the recording.
        utc_offset_s: From that clock to UTC.
        unread: Ranks of the job of which nothing could be read, and why.
        notes: A note for each file.
    """

    job: str
    batches: tuple[Batch, ...]
    now_s: float
    utc_offset_s: float
    unread: dict[int, str]
    notes: tuple[Note, ...]
