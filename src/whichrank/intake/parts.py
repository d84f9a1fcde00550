"""What one file holds: a part for each source in it, looked into by its content, with a note of what became of it."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, TypeVar

from whichrank.errors import FormatError, IncompleteDataError, WhichrankError
from whichrank.intake import flight_job
from whichrank.intake.flight_dump import Dump, rank_in_name
from whichrank.intake.formats import ITERATIONS, LOG, MOST_DUMP_BYTES, Content, all_of, format_of
from whichrank.intake.inspector import Inspected
from whichrank.intake.iteration_log import Tap
from whichrank.intake.kineto import Trace
from whichrank.intake.lines.encodings import as_utf8
from whichrank.intake.logs import read_log
from whichrank.intake.plain_text import for_people
from whichrank.intake.ras_text import is_ras_text
from whichrank.intake.recording import Note, State
from whichrank.intake.sources import Refused, Source, opened, sources_in
from whichrank.intake.stacks_text import Stacks
from whichrank.intake.workers import report_progress

T = TypeVar("T")
MOST_SAID: Final = 200
MOST_RANKS: Final = 1 << 17
"""Of a job; a number in the name of a file that is larger is something else."""
UNNAMED: Final = "neither its content nor its name says whose it is; name it like trace_0, with the rank at the end"
NO_RECORDING: Final = "it is no recording that is known"


@dataclass(frozen=True)
class Part:
    """What one source held."""

    note: Note
    content: Content | None = None
    modified_s: float = 0.0


def those(parts: Iterable[Part], kind: type[T]) -> list[tuple[Note, T]]:
    """What is of this kind, each with its note."""
    return [(part.note, part.content) for part in parts if isinstance(part.content, kind)]


def look_into_bytes(name: str, stream: IO[bytes], size: int) -> list[Part]:
    """What bytes that are held in memory are, or the parts of an archive."""
    return [part for source in sources_in(name, stream, size) for part in _looked_into(source)]


def _looked_into(source: Source | Refused) -> list[Part]:
    """What a source holds: an answer of RAS may stand in the same file as lines of a log."""
    if isinstance(source, Refused):
        return [damaged(source.name, source.why)]
    stream, head = as_utf8(source.stream, source.head)
    source = replace(source, stream=stream, head=head)
    if is_ras_text(head):
        data = all_of(source, MOST_DUMP_BYTES)
        both = [replace(source, stream=io.BytesIO(data)) for _ in range(2)]
        return [_part(both[0]), *_of_text(both[1], is_beside_ras=True)]
    if head and format_of(head) is None and LOG.is_it(head):
        return _of_text(source) or [Part(_note(source.name, "", "ignored", what=NO_RECORDING))]
    return [_part(source)]


def _of_text(source: Source, *, is_beside_ras: bool = False) -> list[Part]:
    """What a log says of ranks, and what it says of iterations; nothing if it says neither.

    Args:
        source: The log.
        is_beside_ras: Answers of RAS in it were read already.
    """
    tap, parts = Tap(source.stream), []
    with suppress(Exception):
        log = read_log(tap.buffered(), is_beside_ras=is_beside_ras)
        note = _note(source.name, LOG.name, "read", what=log.left_out)
        parts.append(Part(note, log))
    if logged := tap.logged(source.name):
        parts.append(Part(_note(source.name, ITERATIONS, "read"), logged))
    return parts


def look_into(path: Path) -> list[Part]:
    """What a file holds, or the parts of an archive."""
    parts = []
    try:
        with opened(path, report_progress) as sources:
            for source in sources:
                parts += _looked_into(source)
    except OSError as error:
        parts.append(damaged(str(path), IncompleteDataError(f"it cannot be read: {error.strerror}")))
    except Exception as error:
        parts.append(damaged(str(path), _unreadable(error)))
    return parts


def _part(source: Source) -> Part:
    if not source.head:
        return Part(_note(source.name, "", "empty", rank_in_name(source.name), what="it is empty"))
    known = format_of(source.head)
    if known is None:
        return Part(_note(source.name, "", "ignored", what=NO_RECORDING))
    try:
        content = known.read(source)
    except WhichrankError as error:
        return damaged(source.name, error, known.name)
    except Exception as error:
        return damaged(source.name, _unreadable(error), known.name)
    if not isinstance(content, Dump | Inspected | Stacks | Trace):
        return Part(_note(source.name, known.name, "read"), content)
    said = getattr(content, "rank", None)
    rank = said if said is not None else rank_in_name(source.name)
    most = flight_job.world_size(content) if isinstance(content, Dump) else getattr(content, "world_size", 0)
    if rank is None or rank >= (most or MOST_RANKS):
        return Part(_note(source.name, known.name, "damaged", what=UNNAMED))
    return Part(_note(source.name, known.name, "read", rank), content, source.modified_s)


def _note(path: str, known_as: str, state: State, rank: int | None = None, what: str = "") -> Note:
    return Note(for_people(path), known_as, state, rank, for_people(what))


def _unreadable(error: Exception) -> FormatError:
    if isinstance(error, MemoryError):
        return FormatError("it asks for more memory than a recording needs")
    return FormatError(f"it cannot be read: {str(error)[:MOST_SAID] or type(error).__name__}")


def damaged(name: str, why: WhichrankError, known_as: str = "") -> Part:
    """A part that could not be read.

    Args:
        name: As it is told to the user.
        why: What is wrong with it.
        known_as: The format that it looks like, "" if it looks like none.
    """
    what = f"{why.what}; {why.mend}" if why.mend else why.what
    return Part(_note(name, known_as, "damaged", rank_in_name(name), what=what))
