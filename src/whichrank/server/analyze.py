"""Recordings that others made, through the analyzer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from whichrank.analyzer import Analyzer, slowdowns_in
from whichrank.config import AnalyzerConfig
from whichrank.intake.recording import Recording
from whichrank.model.clause import Says
from whichrank.model.evidence import Evidence
from whichrank.model.incident import Cause, Incident
from whichrank.model.telemetry import Batch

MOST_SAID: Final = 8


def analyze(recording: Recording) -> tuple[Incident, ...]:
    """What is found in it: the last word on each incident, in the order in which they began."""
    return analyzed(recording, analyzer_of(recording))


def analyzer_of(recording: Recording) -> Analyzer:
    """One that has not been reported anything yet."""
    return Analyzer(AnalyzerConfig(), recording.job, utc_offset_s=recording.utc_offset_s or 0.0)


def analyzed(
    recording: Recording, analyzer: Analyzer, see: Callable[[Batch], None] = lambda _: None
) -> tuple[Incident, ...]:
    """As `analyze`, by this analyzer.

    Args:
        recording: What it is fed with.
        analyzer: Of `analyzer_of`.
        see: Called with each batch after it was fed.
    """
    for batch in recording.batches:
        analyzer.feed(batch, recording.now_s)
        see(batch)
    latest = {
        incident.id: _with_logs(incident, recording) for incident in analyzer.at_rest(recording.now_s, recording.about)
    }
    now = datetime.now(UTC)
    if recording.iterations is not None:
        return (*latest.values(), *slowdowns_in(recording.iterations, recording.job, now))
    if recording.utc_offset_s is not None:
        return tuple(latest.values())
    # Nothing says when it was.
    return tuple(msgspec.structs.replace(i, onset=None, detected=now, located=None) for i in latest.values())


def _with_logs(incident: Incident, recording: Recording) -> Incident:
    """With what logs say of the ranks that it names, and why nothing was read of its candidates."""
    named = [culprit.rank for culprit in (*incident.culprits, *incident.candidates)]
    unread = tuple(
        Evidence(what="not read", value=why, where=f"rank {one.rank}")
        for one in incident.candidates[:MOST_SAID]
        if (why := recording.unread.get(one.rank)) and any(c.says is Says.AWAITED_NO_RECORD for c in one.clauses)
    )
    facts = tuple(
        Evidence(what="log", value=line, where=f"rank {rank}")
        for rank in named[:MOST_SAID]
        for line in recording.said.get(rank, ())[:MOST_SAID]
    )
    facts += unread
    if recording.most_known >= 0 and incident.cause == Cause.UNKNOWN and incident.kind == "hang":
        beyond = f"no line says how many there are; one beyond rank {recording.most_known} may be at fault too"
        facts += (Evidence(what="ranks", value=beyond),)
    return msgspec.structs.replace(incident, evidence=(*incident.evidence, *facts)) if facts else incident
