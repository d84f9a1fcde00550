"""A recording that others made, through the analyzer."""

from __future__ import annotations

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.intake.recording import Recording
from whichrank.model.incident import Incident


def analyze(recording: Recording) -> tuple[Incident, ...]:
    """What is found in it: the last word on each incident, in the order in which they began."""
    analyzer = Analyzer(AnalyzerConfig(), recording.job, utc_offset_s=recording.utc_offset_s)
    for batch in recording.batches:
        analyzer.feed(batch, recording.now_s)
    latest = {incident.id: incident for incident in analyzer.at_rest(recording.now_s)}
    return tuple(latest.values())
