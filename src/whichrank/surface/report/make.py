"""Paths in, what they hold out: of a run that was recorded, of one that was only reported, or of others' recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from whichrank.analyzer import Analyzer
from whichrank.errors import UsageError, WhichrankError
from whichrank.intake.read import read
from whichrank.intake.recording import Intake, Recording
from whichrank.server.analyze import analyze, analyzed, analyzer_of
from whichrank.server.incidents_file import FILE_NAME, job_file, read_incidents
from whichrank.server.mitigations_file import mitigated_in
from whichrank.server.replay import settings_of, tape_at
from whichrank.server.times_file import read_times
from whichrank.stage.config_file import Configured
from whichrank.surface.redact import Redacted, redacted
from whichrank.surface.report.gather import MOST_SPANS, EarlierAttempt, Gathered, Gatherer
from whichrank.surface.report.scene import Scene
from whichrank.surface.report.spans import SPAN
from whichrank.wire.tape import Tape

NOT_RECORDED: Final = (
    "This run was not recorded, so its operations, iterations and stacks are not here. "
    "`whichrank run --record` keeps them next time."
)

ShowProgress = Callable[[int, int], None]
Note = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """What some paths held.

    Attributes:
        gathered: What there is of the job.
        notes: What became of each file that was read.
        is_complete: Nothing that belongs to it is missing or damaged.
        damage: A sentence on what of a run's record could not be read; empty if all could.
    """

    gathered: Gathered
    notes: tuple[Note, ...] = ()
    is_complete: bool = True
    damage: str = ""


def gather(
    paths: Sequence[Path], redact: Iterable[Redacted] = (), show_progress: ShowProgress = lambda _done, _total: None,
    most_spans: int = MOST_SPANS, configured: Configured | None = None,
) -> Source:  # fmt: skip
    """What there is of a run, or in recordings of others.

    Args:
        paths: The folder of a run, its `telemetry.tape`, its `incidents.jsonl`, or recordings that others made.
        redact: What is left out.
        show_progress: Called with how much was read, and how much there is.
        most_spans: Operations that are kept.
        configured: What a configuration of the job says of its layout; None where there is none.

    Raises:
        WhichrankError: There is nothing to read.
    """
    redact = set(redact)
    record = record_in(paths)
    if tape := tape_in(paths):
        source = _of_tape_or_record(tape, record, most_spans, configured)
    elif record:
        source = _of_record(record)
    else:
        source = _of_recordings(paths, show_progress, "recording" if "paths" in redact else "", most_spans, configured)
    gathered, of_run = source.gathered, tape or record
    if of_run is not None:
        gathered = replace(gathered, mitigations=mitigated_in(of_run.parent, gathered.job))
    gathered, notes = redacted(gathered, source.notes, redact)
    return replace(source, gathered=gathered, notes=notes)


def tape_in(paths: Sequence[Path]) -> Path | None:
    """The tape of a run, if these paths name one."""
    tape = tape_at(paths[0]) if len(paths) == 1 else None
    return tape if tape is not None and tape.is_file() and _is_tape(tape) else None


def record_in(paths: Sequence[Path]) -> Path | None:
    """The `incidents.jsonl` of a run, if these paths name one or its folder.

    Raises:
        UsageError: They name several runs.
    """
    found = [path / FILE_NAME if path.is_dir() else path for path in paths]
    found = [path for path in found if path.name == FILE_NAME and path.is_file()]
    if len(found) > 1 or (found and len(paths) > 1):
        raise UsageError("these are several runs", mend="name the folder of one run")
    return found[0] if found else None


def _of_recordings(
    paths: Sequence[Path], show_progress: ShowProgress, job: str, most_spans: int, configured: Configured | None
) -> Source:
    """Of recordings of several kinds, all verdicts, and the operations of the first one of the last attempt."""
    intake = read(paths, show_progress)
    recording, *others = (replace(one, job=job or one.job) for one in intake.recordings)
    analyzer = analyzer_of(recording)
    gatherer = Gatherer(analyzer, most_spans, configured)
    gatherer.report(analyzed(recording, analyzer, gatherer.see), recording.now_s)
    # A dump does not say when it was made.
    gathered = gatherer.gathered(recording.job, recording.now_s, recording.utc_offset_s, knows_end=False)
    more = tuple(incident for other in others for incident in analyze(other))
    incidents = (*gathered.incidents, *more)
    left_open = "" if incidents else next((one.left_open for one in intake.recordings if one.left_open), "")
    gathered = replace(
        gathered, incidents=incidents, scenes=(*gathered.scenes, *(None for _ in more)), left_open=left_open,
        attempt=intake.title_of(intake.number), earlier=_earlier(intake, job), remarks=_remarks(intake.recordings),
    )  # fmt: skip
    notes = tuple(msgspec.to_builtins(note) for note in intake.notes)
    return Source(gathered, notes, not left_open and not any(one.unread for one in intake.recordings))


def _earlier(intake: Intake, job: str) -> tuple[EarlierAttempt, ...]:
    """The verdicts on the attempts before the last one, the latest first.

    Args:
        intake: What was read.
        job: A name for it that is used in place of its own; empty: that one.
    """
    found = []
    for attempt in intake.earlier:
        name = f"{job}-attempt-{attempt.number}" if job else ""
        recordings = [replace(one, job=name or one.job) for one in attempt.recordings]
        incidents = tuple(incident for one in recordings for incident in analyze(one))
        left_open = "" if incidents else next((one.left_open for one in recordings if one.left_open), "")
        title = intake.title_of(attempt.number)
        found.append(EarlierAttempt(attempt.number, title, incidents, left_open, _remarks(recordings)))
    return tuple(found)


def _remarks(recordings: Iterable[Recording]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for one in recordings for text in one.remarks))


def _of_tape_or_record(tape: Path, record: Path | None, most_spans: int, configured: Configured | None) -> Source:
    """Of a tape that cannot be read, what was reported beside it."""
    try:
        return _of_tape(tape, most_spans, configured)
    except WhichrankError as error:
        if record is None:
            raise
        return replace(_of_record(record, f"Its recording cannot be read: {error.what}."), is_complete=False)


def _of_tape(path: Path, most_spans: int, configured: Configured | None) -> Source:
    """What a recorded run was reported, and what was found in it.

    Raises:
        FormatError: It is no tape.
        IncompleteDataError: It cannot be read.
    """
    tape = Tape(path)
    settings, head = settings_of(tape, path), tape.head
    analyzer = Analyzer(settings, head.job, utc_offset_s=head.utc_offset_s, is_live=True)
    gatherer = Gatherer(analyzer, most_spans, configured)
    now_s = 0.0
    for entry in tape:
        now_s = entry.now_s
        if entry.batch is not None:
            analyzer.feed(entry.batch, now_s)
            analyzer.orders(entry.batch.agent)
            if analyzer.admits(entry.batch.agent):
                gatherer.see(entry.batch)
            continue
        gatherer.report(analyzer.tick(now_s) if entry.kind == "tick" else analyzer.finish(now_s), now_s)
    gathered = gatherer.gathered(
        tape.head.job, now_s, tape.head.utc_offset_s, knows_end=True, is_whole=tape.is_whole
    )  # fmt: skip
    return Source(gathered, is_complete=tape.is_whole)


def _of_record(path: Path, why: str = "") -> Source:
    """What was reported while a run was watched that was not recorded.

    Args:
        path: Of its `incidents.jsonl`.
        why: A sentence that says why there is nothing else; empty if the run was not recorded.

    Raises:
        IncompleteDataError: It cannot be read.
        IncidentFormatError: It holds an incident of another version.
    """
    reading = read_incidents(path)
    about = job_file(path.parent)
    times = read_times(path.parent)
    named = [one for incident in reading.incidents for one in (*incident.culprits, *incident.candidates)]
    scenes = tuple(Scene(times=times.ranks if one.kind == "slow" else ()) for one in reading.incidents)
    gathered = Gathered(
        job=reading.job,
        world_size=about.world_size or 0,
        hosts={one.rank: one.host for one in named if one.host},
        incidents=reading.incidents,
        scenes=scenes,
        job_scene=None if scenes else Scene(times=times.ranks),
        spans=np.zeros(0, SPAN),
        comms=(),
        operations=(),
        links=times.links,
        changes=times.changes,
        utc_offset_s=None,
        end_s=None,
        seen=0,
        more_hosts=tuple(about.hosts),
        missing=why or NOT_RECORDED,
    )
    notes = tuple({"path": str(path), "format": "", "state": "damaged", "what": str(one)} for one in reading.faults)
    faults = "; ".join(one.what for one in reading.faults)
    damage = f"a part of {path.name} could not be read: {faults}" if faults else ""
    return Source(gathered, notes, not reading.faults, damage)


def _is_tape(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(6) == b"WRTAPE"
    except OSError:
        return False  # why it cannot be read is said of it as of any other file
