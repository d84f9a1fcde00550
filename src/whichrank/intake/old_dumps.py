"""Dumps that an earlier attempt of a job has left beside those of the last one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from whichrank.intake.attempts import SLACK_S
from whichrank.intake.flight_job import RankDump

STALE_S: Final = 3600.0
"""A dump whose latest operation is older than the latest of all by so much is old: timeouts are shorter."""


def earlier_dumps(reported: Iterable[RankDump], written_s: Mapping[int, float]) -> set[int]:
    """Ranks whose dump is of an earlier attempt, or at least of an earlier moment than those of the others.

    A dump that was written before another rank issued its latest operation does not show the moment in which that rank
    stands still. Times of files are believed if each dump was written after all that it says.

    Args:
        reported: What was read.
        written_s: By rank, when the file was written: unix time, 0 if not known.
    """
    latest_s = {one.rank: one.latest_ns / 1e9 for one in reported}
    last_s = max(latest_s.values(), default=0.0)
    found = {rank for rank, at_s in latest_s.items() if 0 < at_s < last_s - STALE_S}
    if all(at_s <= written_s.get(rank, 0.0) for rank, at_s in latest_s.items()):
        found |= {rank for rank in latest_s if 0 < written_s.get(rank, 0.0) < last_s - SLACK_S}
    return found
