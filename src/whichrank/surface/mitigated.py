"""What is done about something slow, in words."""

from __future__ import annotations

from typing import Final

from whichrank.act.planner import Level
from whichrank.server.mitigations_file import Mitigated
from whichrank.verdict.words.amounts import duration

MOST: Final = 8
"""Replicas that are listed."""


def sentence_of(line: Mitigated) -> str:
    """In one line."""
    if line.what == "measured":
        return (
            f"mitigation: an iteration takes {duration(line.measured_s or 0.0)}; it took {duration(line.now_s)}, and"
            f" {duration(line.predicted_s)} was expected"
        )
    if line.level == Level.IGNORE:
        back = {"relief": "all are as quick as before", "no_gain": "it gains much less than expected"}
        return f"mitigation: all replicas compute as many microbatches again, since {back.get(line.why, line.why)}"
    changes = [
        f"replica {at} computes {after} microbatches instead of {before}"
        for at, (before, after) in enumerate(zip(line.before, line.after, strict=True))
        if before != after
    ]
    listed = f"{', '.join(changes[:MOST])}{', and so on' * (len(changes) > MOST)}"
    gains = f"an iteration takes {duration(line.now_s)} and would take {duration(line.predicted_s)}"
    if line.what == "made":
        return f"mitigation: {listed}, since {gains}"
    return f"mitigation: it would help if {listed}: {gains}; to have it done, run with --mitigate auto"
