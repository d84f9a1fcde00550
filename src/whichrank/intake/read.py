"""Paths in, a recording out: each file is looked into by its content, and what belongs to one job is put together."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whichrank.errors import FormatError, IncompleteDataError, UsageError, WhichrankError
from whichrank.intake.flight_dump import Dump, rank_in_name, read_json, read_pickle
from whichrank.intake.flight_job import SINCE_S, batches_of, job_of
from whichrank.intake.recording import Note, Recording
from whichrank.intake.sources import Refused, Source, files_in, opened
from whichrank.intake.workers import each

FLIGHT_RECORDER: Final = "flight_recorder"
MOST_DUMP_BYTES: Final = 256 << 20
CHUNK_BYTES: Final = 1 << 20
LISTED: Final = 8
_PICKLE: Final = b"\x80"
_JSON_KEYS: Final = (b'"pg_config"', b'"pg_status"', b'"entries"')


@dataclass(frozen=True)
class Part:
    """What one source held."""

    note: Note
    dump: Dump | None = None


def read(paths: Sequence[Path], tell: Callable[[int, int], None] = lambda _done, _total: None) -> Recording:
    """Read all that these paths hold of one job.

    Args:
        paths: Files, folders, archives.
        tell: Called with how many files were read, and how many there are.

    Raises:
        IncompleteDataError: There is nothing in them that is known.
        UsageError: They hold several jobs.
    """
    files = files_in(paths)
    parts: list[Part] = []
    for done, (path, found) in enumerate(zip(files, each(look_into, files), strict=True), 1):
        parts += found if isinstance(found, list) else [_damaged(str(path), found)]
        tell(done, len(files))
    return _of_flight_recorder(parts, paths)


def look_into(path: Path) -> list[Part]:
    """What a file holds, or the parts of an archive."""
    parts = []
    try:
        with opened(path) as sources:
            for source in sources:
                parts.append(_damaged(source.name, source.why) if isinstance(source, Refused) else _part(source))
    except OSError as error:
        parts.append(_damaged(str(path), IncompleteDataError(f"it cannot be read: {error.strerror}")))
    return parts


def _damaged(name: str, why: WhichrankError, known_as: str = "") -> Part:
    return Part(Note(name, known_as, "damaged", rank_in_name(name), what=_sentence(why)))


def _sentence(error: WhichrankError) -> str:
    return f"{error.what}; {error.mend}" if error.mend else error.what


def _part(source: Source) -> Part:
    if not source.head:
        return Part(Note(source.name, "", "empty", rank_in_name(source.name), what="it is empty"))
    reader = _reader(source.head)
    if reader is None:
        return Part(Note(source.name, "", "ignored", what="it is no recording that is known"))
    try:
        dump = reader(_all_of(source))
    except WhichrankError as error:
        return _damaged(source.name, error, FLIGHT_RECORDER)
    except (OSError, EOFError) as error:
        return _damaged(source.name, FormatError(f"it cannot be read: {error}"), FLIGHT_RECORDER)
    rank = dump.rank if dump.rank is not None else rank_in_name(source.name)
    if rank is None:
        what = "neither its content nor its name says whose it is; name it like trace_0, with the rank at the end"
        return Part(Note(source.name, FLIGHT_RECORDER, "damaged", what=what))
    return Part(Note(source.name, FLIGHT_RECORDER, "read", rank), dump)


def _all_of(source: Source) -> bytes:
    data = bytearray()
    while chunk := source.stream.read(CHUNK_BYTES):
        data += chunk
        if len(data) > MOST_DUMP_BYTES:
            raise FormatError(f"it is larger than {MOST_DUMP_BYTES >> 20} MiB, which no dump is")
    return bytes(data)


def _reader(head: bytes) -> Callable[[bytes], Dump] | None:
    """How to read what begins like this, None if it is nothing that is known."""
    if head.startswith(_PICKLE) and len(head) > 2 and head[1] <= 5:
        return read_pickle
    if head.lstrip()[:1] == b"{" and any(key in head for key in _JSON_KEYS):
        return read_json
    return None


def _of_flight_recorder(parts: list[Part], paths: Sequence[Path]) -> Recording:
    notes = tuple(part.note for part in parts)
    dumps: dict[int, Dump] = {}
    whose: dict[int, str] = {}
    for part in parts:
        rank = part.note.rank
        if part.dump is None or rank is None:
            continue
        if rank in dumps:
            raise _several_jobs(f"'{whose[rank]}' and '{part.note.path}' are both of rank {rank}", whose[rank])
        dumps[rank], whose[rank] = part.dump, part.note.path
    if not dumps:
        raise IncompleteDataError(_nothing(notes, paths), mend="whichrank analyze --help  lists what can be read")
    sizes = {rank: _world_size(dump) for rank, dump in dumps.items()}
    known = {size: rank for rank, size in sizes.items() if size}
    if len(known) > 1:
        (one, of_one), (other, of_other) = list(known.items())[:2]
        what = f"'{whose[of_one]}' is of a job of {one} ranks, and '{whose[of_other]}' of one of {other}"
        raise _several_jobs(what, whose[of_one])
    size = max([*known, max(dumps) + 1])
    told, older = job_of(dumps)
    unread = dict.fromkeys(sorted(set(range(size)) - dumps.keys()), "there is no dump of it")
    unread |= {
        n.rank: n.what for n in notes if n.state in ("empty", "damaged") and n.rank in unread and n.rank is not None
    }
    unread |= dict.fromkeys(older, "its dump was made before those of its peers, while the job still went on")
    told = [one for one in told if one.rank not in older]
    now_s = max((one.latest_ns for one in told), default=0) / 1e9 + SINCE_S
    return Recording(_name(paths), batches_of(told, size, now_s), now_s, 0.0, dict(sorted(unread.items())), notes)


def _world_size(dump: Dump) -> int:
    """Of the group that all ranks are in, 0 if it does not say."""
    default = [group for group in dump.groups if group.members and group.desc in ("default_pg", "mesh_default")]
    return max((len(group.members) for group in default), default=0)


def _several_jobs(what: str, one_of_them: str) -> UsageError:
    return UsageError(
        f"these are recordings of several jobs, or of several moments: {what}",
        mend=f"give those of one only, such as  whichrank analyze {shlex.quote(str(Path(one_of_them).parent))}",
    )


def _nothing(notes: Iterable[Note], paths: Sequence[Path]) -> str:
    where = ", ".join(f"'{path}'" for path in paths)
    bad = [note for note in notes if note.state in ("empty", "damaged")]
    if not bad:
        return f"there is no recording in {where}"
    listed = "; ".join(f"'{note.path}': {note.what}" for note in bad[:LISTED])
    more = f"; and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
    return f"there is no recording in {where} that can be read: {listed}{more}"


def _name(paths: Sequence[Path]) -> str:
    name = paths[0].resolve().name if paths else ""
    return name.split(".")[0] or "recording"
