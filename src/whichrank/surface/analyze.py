"""Recordings that others made, through the analyzer."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.intake.recording import Recording
from whichrank.model.incident import Incident


def analyze(recording: Recording) -> tuple[Incident, ...]:
    """What is found in it: the last word on each incident, in the order in which they began."""
    analyzer = Analyzer(AnalyzerConfig(), recording.job, utc_offset_s=recording.utc_offset_s or 0.0)
    for batch in recording.batches:
        analyzer.feed(batch, recording.now_s)
    latest = {incident.id: incident for incident in analyzer.at_rest(recording.now_s)}
    if recording.utc_offset_s is not None:
        return tuple(latest.values())
    now = datetime.now(UTC)  # nothing says when it was
    return tuple(msgspec.structs.replace(i, onset=None, detected=now, located=None) for i in latest.values())
