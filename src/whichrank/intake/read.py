"""Paths in, recordings out: each file is looked into by its content, and what belongs to one job is put together."""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, TypeVar

import msgspec
import numpy as np

from whichrank.errors import FormatError, IncompleteDataError, UsageError, WhichrankError
from whichrank.intake import (
    attempts,
    flight_batches,
    flight_job,
    inspector_job,
    kineto_job,
    megatrace,
    nccl_log,
    op_spans,
    ras,
    watchdog,
)
from whichrank.intake.counted import dump_of
from whichrank.intake.facts import joined
from whichrank.intake.flight_dump import Dump, Group, rank_in_name
from whichrank.intake.formats import FLIGHT_RECORDER, LOG, MOST_DUMP_BYTES, Content, all_of, format_of
from whichrank.intake.inspector import Inspected
from whichrank.intake.kineto import Trace
from whichrank.intake.lines.encodings import as_utf8
from whichrank.intake.log_job import Said, said_by
from whichrank.intake.logs import Log
from whichrank.intake.megatrace import Megatrace
from whichrank.intake.op_spans import Spans
from whichrank.intake.plain_text import for_people
from whichrank.intake.ras import Ras, Snapshots
from whichrank.intake.ras_text import is_ras_text
from whichrank.intake.recording import Intake, Note, Recording, State
from whichrank.intake.sources import Refused, Source, files_in, opened, sources_in
from whichrank.intake.span_ops import step_ops_of
from whichrank.intake.stacks_text import Stacks, who_stands_elsewhere
from whichrank.intake.workers import CPU_S, each
from whichrank.model.picture import Recorded

T = TypeVar("T")
LISTED: Final = 8
CALLERS: Final = 4
MOST_SAID: Final = 200
MOST_RANKS: Final = 1 << 17
"""Of a job; a number in the name of a file that is larger is something else."""
JUST_NOW_S: Final = 1.0
"""A dump that was written so soon after its latest operation is of a job that went on: timeouts are longer."""
CLOCKS_S: Final = 2.0
"""By how much the clock of who wrote the file may be behind."""
LEAST_CPU_S: Final = 30
BYTES_A_CPU_S: Final = 1 << 16
"""Of a file that is packed as tightly as may be; a plain one takes less than a hundredth of it."""
BYTES_A_PROCESS: Final = 1 << 20
"""Of files, for which one more process pays: to start it takes as long as to read as much, or longer."""
DUMP: Final = "dump"
_OF_EACH: Final = {
    "megatrace": "log", "watchdog": "line of torch's watchdog", "ras": "count", "nccl_log": "line of NCCL",
    "log": "word in these logs",
}  # fmt: skip
"""What there would be of each rank, where no dumps are."""
_ONLY_TIMES: Final = Recorded(shows_hangs=False)
NO_OPERATION: Final = (
    "these logs say nothing of operations, so who waits for whom is not known; dumps of the Flight Recorder, or the "
    "lines "
    "of PyTorch's watchdog of all ranks, would show it"
)
EARLIER_ATTEMPT: Final = "it is of an earlier attempt of the job"
OF_LAST_ATTEMPT: Final = (
    "this is about the last attempt of the job that says anything; what earlier ones wrote is left out"
)
COPY: Final = "it says the same as"
OLDER_DUMP: Final = "its dump was made before the others stood still, perhaps in an earlier attempt of the job"
UNNAMED: Final = "neither its content nor its name says whose it is; name it like trace_0, with the rank at the end"


@dataclass(frozen=True)
class Part:
    """What one source held."""

    note: Note
    content: Content | None = None
    modified_s: float = 0.0


def read(
    paths: Sequence[Path],
    show_progress: Callable[[int, int], None] = lambda _done, _total: None,
    note: Callable[[Note], None] = lambda _: None,
) -> Intake:
    """Read all that these paths hold.

    Args:
        paths: Files, folders, archives.
        show_progress: Called with how many files were read, and how many there are.
        note: Called with what became of each, also where nothing comes of all of them.

    Raises:
        IncompleteDataError: There is nothing in them that is known.
        UsageError: They hold several jobs.
    """
    files = files_in(paths)
    parts: list[Part] = []
    groups: dict[Group, Group] = {}
    with closing(each(look_into, files, _processes(files), _cpu_s)) as looked_into:
        for done, (path, found) in enumerate(zip(files, looked_into, strict=True), 1):
            if isinstance(found, WhichrankError):
                found = [_damaged(str(path), found)]
            parts += [_with_shared(part, groups) for part in found]
            show_progress(done, len(files))
    return put_together(parts, _name(paths), paths, note)


def put_together(
    parts: list[Part], name: str, paths: Sequence[Path], note: Callable[[Note], None] = lambda _: None
) -> Intake:
    """The recordings that the parts of some files make.

    Args:
        parts: What each file held.
        name: Of the job.
        paths: For what is said where there is nothing in them.
        note: As of `read`.

    Raises:
        IncompleteDataError: There is nothing in them that is known.
        UsageError: They hold several jobs.
    """
    parts, has_earlier = _of_last_attempt(_without_copies(parts))
    notes = tuple(part.note for part in parts)
    for one in notes:
        note(one)
    polls = [snapshot for _, found in _those(parts, Snapshots) for snapshot in found.polls]
    logs, is_cut = attempts.last_attempt([log for _, log in _those(parts, Log)])
    elsewhere = who_stands_elsewhere({n.rank: one for n, one in _those(parts, Stacks) if n.rank is not None})
    said = said_by(logs, polls, [elsewhere] if elsewhere else ())
    written_s = {part.note.path: part.modified_s for part in parts}
    try:
        dumps = _those(parts, Dump)
        recordings = [_of_dumps(dumps, notes, name, said, written_s)] if dumps else []
        if not recordings:
            recordings += _of_counts(parts, logs, polls, notes, name, said)
        if traces := _those(parts, Trace):
            recordings.append(_of_traces(traces, notes, name))
        if inspected := _those(parts, Inspected):
            recordings.append(_of_inspected(inspected, notes, name))
        recordings += [_of_spans(table, name) for _, table in _those(parts, Spans)]
        if not recordings:
            recordings += _of_reports(said, notes, name)
    except (OverflowError, ValueError, IndexError, KeyError, MemoryError) as error:
        raise FormatError(f"what these files say cannot be put together ({type(error).__name__})") from error
    if not recordings:
        raise IncompleteDataError(_nothing(notes, paths), mend="whichrank analyze --help  lists what can be read")
    if has_earlier or is_cut:
        recordings = [replace(one, remarks=(*one.remarks, OF_LAST_ATTEMPT)) for one in recordings]
    if said.remarks:
        recordings = [replace(one, remarks=(*one.remarks, *said.remarks[:LISTED])) for one in recordings]
    return Intake(tuple(recordings), notes)


def _cpu_s(path: Path) -> int:
    """What reading a file may take. A hundred bytes can take for ever: a pickled key that holds itself many times."""
    try:
        return int(min(LEAST_CPU_S + path.stat().st_size / BYTES_A_CPU_S, CPU_S))
    except OSError:
        return LEAST_CPU_S  # whoever reads it says so


def _processes(files: Sequence[Path]) -> int:
    """So many that each has enough to read to be worth its start; no more than there are cores."""
    total = 0
    for path in files:
        with suppress(OSError):
            total += path.stat().st_size
    return min(1 + total // BYTES_A_PROCESS, len(os.sched_getaffinity(0)))


def _with_shared(part: Part, groups: dict[Group, Group]) -> Part:
    """With groups that were in another dump as they are there: each names all members, and all ranks name the same."""
    if not isinstance(part.content, Dump):
        return part
    shared = tuple(groups.setdefault(group, group) for group in part.content.groups)
    return replace(part, content=replace(part.content, groups=shared))


def _without_copies(parts: Iterable[Part]) -> list[Part]:
    """Of a rank's file that is there twice, the first; the other is noted and not used."""
    first: dict[tuple[type, int], Part] = {}
    found = []
    for part in parts:
        if part.content is not None and part.note.rank is not None:
            one = first.setdefault((type(part.content), part.note.rank), part)
            if one is not part and _is_same(one.content, part.content):
                what = f"{COPY} '{one.note.path}'"
                part = Part(msgspec.structs.replace(part.note, state="ignored", what=what))
        found.append(part)
    return found


def _of_last_attempt(parts: Sequence[Part]) -> tuple[list[Part], bool]:
    """Without what the paths say is of earlier attempts, and whether there was any: that is noted and not used."""
    last = attempts.last_in_paths(part.note.path for part in parts if part.content is not None)
    if last is None:
        return list(parts), False
    found = []
    for part in parts:
        number = attempts.attempt_in(part.note.path)
        if part.content is not None and number is not None and number < last:
            part = Part(msgspec.structs.replace(part.note, state="ignored", what=EARLIER_ATTEMPT))
        found.append(part)
    return found, True


def _is_same(one: Any, other: Any) -> bool:
    """Are two contents of one type equal?"""
    pairs = ((getattr(one, known.name), getattr(other, known.name)) for known in fields(one))
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)


def _those(parts: Iterable[Part], kind: type[T]) -> list[tuple[Note, T]]:
    """What is of this kind, each with its note."""
    return [(part.note, part.content) for part in parts if isinstance(part.content, kind)]


def look_into_bytes(name: str, stream: IO[bytes], size: int) -> list[Part]:
    """What bytes that are held in memory are, or the parts of an archive."""
    return [part for source in sources_in(name, stream, size) for part in _looked_into(source)]


def _looked_into(source: Source | Refused) -> list[Part]:
    """What a source holds: an answer of RAS may stand in the same file as lines of a log."""
    if isinstance(source, Refused):
        return [_damaged(source.name, source.why)]
    stream, head = as_utf8(source.stream, source.head)
    source = replace(source, stream=stream, head=head)
    if not is_ras_text(head):
        return [_part(source)]
    data = all_of(source, MOST_DUMP_BYTES)
    both = [replace(source, stream=io.BytesIO(data)) for _ in range(2)]
    parts = [_part(both[0])]
    with suppress(WhichrankError):
        parts.append(Part(_note(source.name, LOG.name, "read"), LOG.read(both[1])))
    return parts


def look_into(path: Path) -> list[Part]:
    """What a file holds, or the parts of an archive."""
    parts = []
    try:
        with opened(path) as sources:
            for source in sources:
                parts += _looked_into(source)
    except OSError as error:
        parts.append(_damaged(str(path), IncompleteDataError(f"it cannot be read: {error.strerror}")))
    except Exception as error:
        parts.append(_damaged(str(path), _unreadable(error)))
    return parts


def _part(source: Source) -> Part:
    if not source.head:
        return Part(_note(source.name, "", "empty", rank_in_name(source.name), what="it is empty"))
    known = format_of(source.head)
    if known is None and LOG.is_it(source.head):
        try:
            return Part(_note(source.name, LOG.name, "read"), LOG.read(source))
        except Exception:
            known = None
    if known is None:
        return Part(_note(source.name, "", "ignored", what="it is no recording that is known"))
    try:
        content = known.read(source)
    except WhichrankError as error:
        return _damaged(source.name, error, known.name)
    except Exception as error:
        return _damaged(source.name, _unreadable(error), known.name)
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


def _damaged(name: str, why: WhichrankError, known_as: str = "") -> Part:
    what = f"{why.what}; {why.mend}" if why.mend else why.what
    return Part(_note(name, known_as, "damaged", rank_in_name(name), what=what))


def _by_rank(found: Sequence[tuple[Note, T]]) -> tuple[dict[int, T], dict[int, str]]:
    """What was read of each rank, and its path."""
    contents: dict[int, T] = {}
    whose: dict[int, str] = {}
    for note, content in found:
        assert note.rank is not None
        if note.rank in contents:
            one, other = whose[note.rank], note.path
            raise _several_jobs(f"'{one}' and '{other}' are both of rank {note.rank}", one, other)
        contents[note.rank], whose[note.rank] = content, note.path
    return contents, whose


def _unread(world: int, read: Iterable[int], notes: Iterable[Note], what: str) -> dict[int, str]:
    """Ranks of which there is nothing, and why."""
    unread = dict.fromkeys(sorted(set(range(world)).difference(read)), f"there is no {what} of it")
    return unread | {n.rank: n.what for n in notes if n.state in ("empty", "damaged") and n.rank in unread}


def _world_of(sizes: dict[int, int], whose: dict[int, str]) -> int:
    """Ranks of the job, 0 if none says.

    Args:
        sizes: By rank, how many the job has, 0 if it does not say.
        whose: By rank, the path.
    """
    known = {size: rank for rank, size in sizes.items() if size}
    if len(known) > 1:
        (one, of_one), (other, of_other) = list(known.items())[:2]
        what = f"'{whose[of_one]}' is of a job of {one} ranks, and '{whose[of_other]}' of one of {other}"
        raise _several_jobs(what, whose[of_one], whose[of_other])
    return max([*known, max(sizes, default=-1) + 1])


def _of_dumps(
    found: Sequence[tuple[Note, Dump]], notes: Iterable[Note], name: str, logged: Said,
    written_s: Mapping[str, float] = MappingProxyType({}), what: str = DUMP,
) -> Recording:  # fmt: skip
    """The job of which these dumps are.

    Args:
        found: Each with its note.
        notes: Of all files.
        name: Of the job.
        logged: What logs say beside it.
        written_s: By path, when the file was written, unix time.
        what: What there would be of each rank; none but dumps have sends and receives.
    """
    dumps, whose = _by_rank(found)
    world = _world_of({rank: flight_job.world_size(dump) for rank, dump in dumps.items()}, whose)
    world = max(world, logged.world_size if what != DUMP else 0)
    reported, unsure = flight_job.job_of(dumps)
    written = {rank: written_s.get(path, 0.0) for rank, path in whose.items()}
    unsure |= dict.fromkeys(sorted(attempts.earlier_dumps(reported, written) if what == DUMP else ()), OLDER_DUMP)
    reported = [one for one in reported if one.rank not in unsure]
    unread = _unread(world, dumps, notes, what) | unsure
    facts = {rank: fact for rank, fact in logged.facts.items() if rank < world and fact.world_size in (0, world)}
    batches, now_s = flight_batches.batches_of(reported, world, facts, logged.last_s)
    said = {rank: fact.words for rank, fact in facts.items() if fact.words}
    said |= {one.rank: (*said.get(one.rank, ()), _issued_at(one.dump)) for one in reported if one.dump.frames}
    ages_s = [written_s.get(whose[one.rank], 0.0) - one.latest_ns / 1e9 for one in reported if one.latest_ns]
    is_still = 2 * sum(-CLOCKS_S < age_s < JUST_NOW_S for age_s in ages_s) <= len(ages_s)
    utc_offset_s = 0.0 if any(one.latest_ns for one in reported) else None
    hides = what != DUMP or any(one.dump.backend == "gloo" for one in reported)
    is_young = what == DUMP and flight_job.is_young(reported)
    about = Recorded(
        is_still=is_still, hides_messages=hides, is_young=is_young, has_only_counts=what in _OF_EACH.values(),
        gave_up_s=now_s - (logged.last_s - logged.gave_up_s) if logged.gave_up_s >= 0 else 0.0,
        reports=tuple(one for one in logged.reports if all(rank < world for rank in one.ranks)),
    )  # fmt: skip
    return Recording(name, FLIGHT_RECORDER, batches, now_s, utc_offset_s, dict(sorted(unread.items())), said, about)


def _issued_at(dump: Dump) -> str:
    return f"latest operation issued in {' < '.join(dump.frames[:CALLERS])}"


def _of_counts(
    parts: Sequence[Part], logs: Sequence[Log], polls: Sequence[Ras], notes: Iterable[Note], name: str, said: Said
) -> list[Recording]:  # fmt: skip
    """Where only counts of what was issued are known: of Megatrace, of a watchdog, or of several answers of RAS."""
    enqueued = [one for _, found in _those(parts, Megatrace) for one in found.ranks]
    if enqueued:
        logs_of_ranks, has_earlier = megatrace.of_last_attempt(enqueued)
        dumps = megatrace.dumps_of(logs_of_ranks, max(one.rank for one in enqueued) + 1)
        issued = _of_issued(dumps, "megatrace", notes, name, said)
        remarks = (OF_LAST_ATTEMPT,) if has_earlier else ()
        return [replace(issued, remarks=remarks, left_open=megatrace.incomparable(logs_of_ranks) or megatrace.EQUAL)]
    standings = [one for log in logs for one in log.standings]
    if counted := watchdog.dumps_of(standings, said.world_size):
        return [replace(_of_issued(counted, "watchdog", notes, name, said), left_open=watchdog.NOT_HERE)]
    enqueued_by = {rank: dump for log in logs for rank, dump in log.counted.items()}
    if enqueued_by:
        return [replace(_of_issued(enqueued_by, "nccl_log", notes, name, said), left_open=nccl_log.EQUAL)]
    still = ras.standing_still(polls)
    return [_of_issued(ras.dumps_of(still), "ras", notes, name, said)] if still else []


def of_counts(still: Ras, name: str) -> Recording:
    """A job of which RAS has found more than once that ranks are behind."""
    return _of_issued(ras.dumps_of(still), "ras", (), name, Said(joined(still.facts)))


def _of_issued(dumps: dict[int, Dump], kind: str, notes: Iterable[Note], name: str, said: Said) -> Recording:
    whose = [(Note(f"rank {rank}", kind, "read", rank), dump) for rank, dump in dumps.items()]
    return _of_dumps(whose, notes, name, said, what=_OF_EACH[kind])


def _of_reports(said: Said, notes: Iterable[Note], name: str) -> list[Recording]:
    """Where no operation is known, but who ended, or what a library or a driver reports; or what it cannot name."""
    ended = [rank for rank, fact in said.facts.items() if fact.has_ended]
    raised = tuple(f"rank {r}: {word}" for r, fact in sorted(said.facts.items()) for word in fact.words)
    if not (ended or said.reports or said.remarks or raised):
        return []
    known = [rank for one in said.reports for rank in (*one.waiting, *one.ranks) if rank not in ended]
    dumps = {rank: dump_of("log", rank, (), (), hides_messages=True) for rank in known}
    if not dumps and not ended:
        dumps = {0: dump_of("log", 0, (), (), hides_messages=True)}
    found = _of_issued(dumps, "log", notes, name, said)
    return [replace(found, left_open=NO_OPERATION, remarks=() if ended else raised[:LISTED])]


def _of_traces(found: Sequence[tuple[Note, Trace]], notes: Iterable[Note], name: str) -> Recording:
    """The job of which these traces are."""
    traces, whose = _by_rank(found)
    world = _world_of({rank: trace.world_size for rank, trace in traces.items()}, whose)
    batches, now_s = kineto_job.batches_of(traces, world)
    return Recording(name, "kineto", batches, now_s, None, _unread(world, traces, notes, "trace"), about=_ONLY_TIMES)


def _of_inspected(found: Sequence[tuple[Note, Inspected]], notes: Iterable[Note], name: str) -> Recording:
    """The job whose processes NCCL's Inspector has recorded."""
    processes, whose = _by_rank(found)
    world = _world_of({rank: one.world_size for rank, one in processes.items()}, whose)
    batches, now_s = inspector_job.batches_of(processes, world)
    unread = _unread(world, processes, notes, "file of the Inspector")
    return Recording(name, "inspector", batches, now_s, None, unread, about=_ONLY_TIMES)


def _of_spans(spans: Spans, name: str) -> Recording:
    """The job whose operations are in a table."""
    batches, now_s = op_spans.batches_of(spans)
    return Recording(name, "op_spans", batches, now_s, None, {}, about=_ONLY_TIMES, ops=step_ops_of(spans))


def _several_jobs(what: str, one: str, other: str) -> UsageError:
    """Where one lies in a folder without the other, that is worth a try; else only the user can tell them apart."""
    mend = f"take one of these two away, with all that belongs to it: '{one}', '{other}'"
    folder, another = Path(one).parent, Path(other).parent
    for mine, theirs in ((folder, another), (another, folder)):
        if mine.is_dir() and mine not in (theirs, *theirs.parents):
            mend = f"give those of one only, such as  whichrank analyze {shlex.quote(str(mine))}"
    return UsageError(f"these are recordings of several jobs, or of several moments: {what}", mend=mend)


def _nothing(notes: Iterable[Note], paths: Sequence[Path]) -> str:
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


def _name(paths: Sequence[Path]) -> str:
    name = paths[0].resolve().name if paths else ""
    return name.split(".")[0] or "recording"
