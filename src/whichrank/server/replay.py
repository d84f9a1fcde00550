"""Goes through a tape again: the same analyzer, reported the same at the same times, says the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.errors import FormatError
from whichrank.model.incident import Incident
from whichrank.model.telemetry import Batch
from whichrank.wire.tape import FILE_NAME, Tape


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
    # Batches of one time were taken at once.
    for (kind, now_s), entries in groupby(tape, key=lambda entry: (entry.kind, entry.now_s)):
        if kind == "batch":
            _feed(analyzer, [entry.batch for entry in entries if entry.batch is not None], now_s)
            continue
        for _ in entries:
            yield from analyzer.tick(now_s) if kind == "tick" else analyzer.finish(now_s)


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


def _feed(analyzer: Analyzer, batches: list[Batch], now_s: float) -> None:
    """Feed as it was fed: the orders to the agents were taken then, which has effects too."""
    analyzer.feed_all(batches, now_s)
    for agent in dict.fromkeys(batch.agent for batch in batches):
        analyzer.orders(agent)
