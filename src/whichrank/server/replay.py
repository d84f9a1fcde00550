"""Goes through a tape again: the same analyzer, reported the same at the same times, says the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.errors import FormatError
from whichrank.model.incident import Incident
from whichrank.wire.tape import FILE_NAME, Entry, Tape


@dataclass(frozen=True)
class Replayed:
    """What came of it.

    Attributes:
        incidents: The last word on each, in the order in which they began.
        is_whole: The tape was not cut.
    """

    incidents: tuple[Incident, ...]
    is_whole: bool


def tape_at(path: Path) -> Path:
    """The tape of a run's folder, or the path itself."""
    return path / FILE_NAME if path.is_dir() else path


def replay(path: Path) -> Replayed:
    """Go through a tape.

    Args:
        path: A tape, or the folder of a run that has one.

    Raises:
        IncompleteDataError: It cannot be read.
        FormatError: It is no tape, or is damaged.
    """
    tape = Tape(tape_at(path))
    latest = {incident.id: incident for incident in changes(tape, path)}
    return Replayed(tuple(latest.values()), tape.is_whole)


def changes(tape: Tape, path: Path) -> Iterator[Incident]:
    """Each incident whenever it was new or had changed, in the order in which that was said.

    Args:
        tape: A tape.
        path: Of it, or of its folder, for words.

    Raises:
        FormatError: It is not ours, or is damaged.
    """
    head = tape.head
    analyzer = Analyzer(settings_of(tape, path), head.job, utc_offset_s=head.utc_offset_s, is_live=True)
    for entry in tape:
        yield from _reported(analyzer, entry)


def settings_of(tape: Tape, path: Path) -> AnalyzerConfig:
    """What the analyzer was made with.

    Args:
        tape: A tape.
        path: Of it, or of its folder, for words.

    Raises:
        FormatError: It is not ours.
    """
    try:
        return msgspec.convert(tape.head.settings, AnalyzerConfig)
    except msgspec.ValidationError as error:
        raise FormatError(f"the settings on the tape are not ours: {error}", where=str(path)) from error


def _reported(analyzer: Analyzer, entry: Entry) -> Iterator[Incident]:
    """Make one call as it was made; after a batch the orders to its agent were taken, which has effects too."""
    if entry.batch is not None:
        analyzer.feed(entry.batch, entry.now_s)
        analyzer.orders(entry.batch.agent)
    elif entry.kind == "tick":
        yield from analyzer.tick(entry.now_s)
    else:
        yield from analyzer.finish(entry.now_s)
