"""Paths in, a page out: of a run that was recorded, or of recordings that others made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from whichrank.analyzer import Analyzer
from whichrank.intake.read import read
from whichrank.intake.recording import Intake
from whichrank.model.incident import Incident
from whichrank.surface.analyze import analyze, analyzed, analyzer_of
from whichrank.surface.replay import settings_of, tape_at
from whichrank.surface.report.gather import Gathered, Gatherer
from whichrank.surface.report.page import Redacted, page_of
from whichrank.wire.tape import Tape


def make_report(
    paths: Sequence[Path],
    redact: Iterable[Redacted] = (),
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[str, tuple[Incident, ...], bool]:
    """The page, the incidents in it, and whether nothing is missing.

    Args:
        paths: The folder of a run with a tape, or recordings.
        redact: What is left out.
        tell: Called with how much was read, and how much there is.

    Raises:
        WhichrankError: There is nothing to read.
    """
    if tape := tape_in(paths):
        gathered = gather_tape(tape)
        return page_of(gathered, redact), gathered.incidents, True
    redact = set(redact)
    gathered, intake = gather_recording(paths, tell, "recording" if "paths" in redact else "")
    page = page_of(gathered, redact, [msgspec.to_builtins(note) for note in intake.notes])
    return page, gathered.incidents, not any(recording.unread for recording in intake.recordings)


def gather(paths: Sequence[Path], tell: Callable[[int, int], None] = lambda _done, _total: None) -> Gathered:
    """What there is of a run that was recorded, or in recordings of others.

    Args:
        paths: See `make_report`.
        tell: See `make_report`.

    Raises:
        WhichrankError: There is nothing to read.
    """
    tape = tape_in(paths)
    return gather_tape(tape) if tape else gather_recording(paths, tell)[0]


def tape_in(paths: Sequence[Path]) -> Path | None:
    """The tape of a run, if these paths name one."""
    tape = tape_at(paths[0]) if len(paths) == 1 else None
    return tape if tape is not None and tape.is_file() and _is_tape(tape) else None


def gather_recording(paths: Sequence[Path], tell: Callable[[int, int], None], job: str = "") -> tuple[Gathered, Intake]:
    """What is in recordings of others, and what was read. Of several, all verdicts, and the operations of the first.

    Args:
        paths: See `make_report`.
        tell: See `make_report`.
        job: What it is called; like the first path if empty.
    """
    intake = read(paths, tell)
    recording, *others = (replace(one, job=job or one.job) for one in intake.recordings)
    analyzer = analyzer_of(recording)
    gatherer = Gatherer(analyzer)
    incidents = analyzed(recording, analyzer, gatherer.see)
    incidents += tuple(incident for other in others for incident in analyze(other))
    gathered = gatherer.gathered(recording.job, incidents, recording.now_s, recording.utc_offset_s)
    return gathered, intake


def gather_tape(path: Path) -> Gathered:
    """What a recorded run was told, and what was found in it.

    Raises:
        FormatError: It is no tape.
        IncompleteDataError: It cannot be read.
    """
    tape = Tape(path)
    settings, head = settings_of(tape, path), tape.head
    analyzer = Analyzer(settings, head.job, utc_offset_s=head.utc_offset_s, is_live=True)
    gatherer = Gatherer(analyzer)
    latest: dict[str, Incident] = {}
    now_s = 0.0
    for entry in tape:
        now_s = entry.now_s
        if entry.batch is not None:
            analyzer.feed(entry.batch, now_s)
            analyzer.requests(entry.batch.agent)
            if analyzer.admits(entry.batch.agent):
                gatherer.see(entry.batch)
            continue
        told = analyzer.tick(now_s) if entry.kind == "tick" else analyzer.finish(now_s)
        latest.update({incident.id: incident for incident in told})
    return gatherer.gathered(tape.head.job, latest.values(), now_s, tape.head.utc_offset_s)


def _is_tape(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(6) == b"WRTAPE"
    except OSError:
        return False  # why it cannot be read is said of it as of any other file
