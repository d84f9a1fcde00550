"""Paths in, recordings out: each file is looked into by its content, and what belongs to one job is put together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from whichrank.errors import FormatError, IncompleteDataError, WhichrankError
from whichrank.intake import by_kind, iteration_job
from whichrank.intake.attempts import told_apart
from whichrank.intake.dumps_of_attempts import with_dumps_told_apart
from whichrank.intake.each_attempt import intake_of
from whichrank.intake.flight_dump import Dump, Group
from whichrank.intake.formats import Content
from whichrank.intake.inspector import Inspected
from whichrank.intake.kineto import Trace
from whichrank.intake.log_job import said_by
from whichrank.intake.logs import Log
from whichrank.intake.missing import LISTED, nothing
from whichrank.intake.op_spans import Spans
from whichrank.intake.parts import Part, damaged, look_into, those
from whichrank.intake.parts_used import with_shared, without_copies
from whichrank.intake.pipeline_log import PipelineLog
from whichrank.intake.ras import Snapshots
from whichrank.intake.read_bytes import ReadBytes
from whichrank.intake.recording import Intake, Note, Recording
from whichrank.intake.sources import files_in
from whichrank.intake.stacks_text import Stacks, who_stands_elsewhere
from whichrank.intake.workers import CPU_S, each
from whichrank.model.logged_iterations import LoggedIterations

LEAST_CPU_S: Final = 30
BYTES_A_CPU_S: Final = 1 << 16
"""Of a file that is packed as tightly as may be; a plain one takes less than a hundredth of it."""
BYTES_A_PROCESS: Final = 1 << 20
"""Of files, for which one more process pays: to start it takes as long as to read as much, or longer."""


def read(
    paths: Sequence[Path],
    show_progress: Callable[[int, int], None] = lambda _done, _total: None,
    note: Callable[[Note], None] = lambda _: None,
) -> Intake:
    """Read all that these paths hold.

    Args:
        paths: Files, folders, archives.
        show_progress: Called with how many bytes of files were read, and how many there are.
        note: Called with what became of each, also where nothing comes of all of them.

    Raises:
        IncompleteDataError: There is nothing in them that is known.
        UsageError: They hold several jobs.
    """
    files = files_in(paths)
    parts: list[Part] = []
    groups: dict[Group, Group] = {}
    progress = ReadBytes(files, show_progress)
    with closing(each(look_into, files, _processes(files), _cpu_s, progress.part_of)) as looked_into:
        for number, (path, found) in enumerate(zip(files, looked_into, strict=True)):
            if isinstance(found, WhichrankError):
                found = [damaged(str(path), found)]
            parts += [with_shared(part, groups) for part in found]
            progress.whole(number)
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
    parts = without_copies(parts)
    notes = tuple(part.note for part in parts)
    for one in notes:
        note(one)
    found = told_apart([(part.note.path, part.content) for part in parts])
    found = with_dumps_told_apart(found, [one.path for one in notes], [one.rank for one in notes])

    def recordings_of(contents: Mapping[int, object]) -> list[Recording]:
        mine = [replace(parts[place], content=cast("Content", one)) for place, one in sorted(contents.items())]
        return _recordings_of(mine, notes, name)

    intake = intake_of(found, recordings_of, notes)
    if not intake.recordings:
        raise IncompleteDataError(nothing(notes, paths), mend="whichrank analyze --help  lists what can be read")
    return intake


def _recordings_of(parts: Sequence[Part], notes: Sequence[Note], name: str) -> list[Recording]:
    """The recordings that what is of one attempt makes; none if it says nothing.

    Args:
        parts: What is of the attempt.
        notes: Of all files.
        name: Of the job.
    """
    polls = [snapshot for _, found in those(parts, Snapshots) for snapshot in found.polls]
    logs = [log for _, log in those(parts, Log)]
    polls += [poll for log in logs for poll in log.polls]
    elsewhere = who_stands_elsewhere({n.rank: one for n, one in those(parts, Stacks) if n.rank is not None})
    said = said_by(logs, polls, [elsewhere] if elsewhere else ())
    written_s = {part.note.path: part.modified_s for part in parts}
    try:
        dumps = those(parts, Dump)
        recordings = [by_kind.of_dumps(dumps, notes, name, said, written_s)] if dumps else []
        if not recordings:
            recordings += by_kind.of_counts(parts, logs, polls, notes, name, said)
        if traces := those(parts, Trace):
            recordings.append(by_kind.of_traces(traces, notes, name))
        if inspected := those(parts, Inspected):
            recordings.append(by_kind.of_inspected(inspected, notes, name))
        recordings += [by_kind.of_spans(table, name) for _, table in those(parts, Spans)]
        recordings += by_kind.of_pipeline([log for _, log in those(parts, PipelineLog)], name)
        if not recordings:
            recordings += by_kind.of_reports(said, notes, name)
        logged = iteration_job.recordings_of([found for _, found in those(parts, LoggedIterations)], name)
        recordings += [replace(one, left_open="") if recordings else one for one in logged]
    except (OverflowError, ValueError, IndexError, KeyError, MemoryError) as error:
        raise FormatError(f"what these files say cannot be put together ({type(error).__name__})") from error
    if said.remarks:
        recordings = [replace(one, remarks=(*one.remarks, *said.remarks[:LISTED])) for one in recordings]
    return recordings


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


def _name(paths: Sequence[Path]) -> str:
    name = paths[0].resolve().name if paths else ""
    return name.split(".")[0] or "recording"
