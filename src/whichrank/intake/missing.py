"""Sentences about what is missing: ranks without a file, files of several jobs, paths without a recording."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from whichrank.errors import UsageError
from whichrank.intake.recording import Note

LISTED: Final = 8
NO_OPERATION: Final = (
    "these logs say nothing of operations, so who waits for whom is not known; dumps of the Flight Recorder, or the "
    "lines "
    "of PyTorch's watchdog of all ranks, would show it"
)
NO_STAGES: Final = (
    "these logs of a pipeline lack a stage, or have one twice, or its stages have not logged equally many forward "
    "and backward computations in two iterations, so who waits for whom is not known; give the "
    "logs of all stages of one run"
)


def unread_ranks(world: int, read: Iterable[int], notes: Iterable[Note], what: str) -> dict[int, str]:
    """Ranks of which there is nothing, and why."""
    unread = dict.fromkeys(sorted(set(range(world)).difference(read)), f"there is no {what} of it")
    return unread | {n.rank: n.what for n in notes if n.state in ("empty", "damaged") and n.rank in unread}


def several_jobs(what: str, one: str, other: str) -> UsageError:
    """Where one lies in a folder without the other, that is worth a try; else only the user can tell them apart."""
    mend = f"take one of these two away, with all that belongs to it: '{one}', '{other}'"
    folder, another = Path(one).parent, Path(other).parent
    for mine, theirs in ((folder, another), (another, folder)):
        if mine.is_dir() and mine not in (theirs, *theirs.parents):
            mend = f"give those of one only, such as  whichrank analyze {shlex.quote(str(mine))}"
    return UsageError(f"these are recordings of several jobs, or of several moments: {what}", mend=mend)


def nothing(notes: Iterable[Note], paths: Sequence[Path]) -> str:
    """Why no recording comes of these files, in one sentence."""
    where = ", ".join(f"'{path}'" for path in paths)
    bad = [note for note in notes if note.state in ("empty", "damaged")]
    if beside := [note for note in notes if note.state == "read"]:
        return (
            f"'{beside[0].path}' says something of ranks, but nothing of operations: dumps or traces are needed too"
            + ("; of RAS, two answers some seconds apart" if beside[0].format == "ras" else "")
        )
    if not bad:
        return f"there is no recording in {where}"
    listed = "; ".join(f"'{note.path}': {note.what}" for note in bad[:LISTED])
    more = f"; and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
    return f"there is no recording in {where} that can be read: {listed}{more}"
