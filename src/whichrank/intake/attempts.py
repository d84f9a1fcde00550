"""Attempts of one job: after a failure its launcher starts it again, and what several attempts wrote lies together.

What ranks did in one attempt says nothing about another: counters begin anew, and another rank may be at fault. So only
the last attempt that says anything is looked at. Attempts are told apart by

- a number in the path, as `torchrun --log-dir` makes it: `attempt_1/0/stderr.log`;
- time: an operation that began after another one had run out of time belongs to a later attempt, since such a timeout
  ends the job;
- counters: those of one rank on one group never go back;
- a line in which the launcher says that it starts the workers again.

Example: rank 0 writes at 03:00 and at 05:00 that an operation has run for 10 minutes. The second operation began at
04:50, so whatever was written after 04:49 is of another attempt than what was written before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from whichrank.errors import UsageError
from whichrank.intake.flight_job import RankDump
from whichrank.intake.log_time import YEAR_S, across_new_year
from whichrank.intake.logs import Log
from whichrank.intake.watchdog import Standing

SLACK_S: Final = 60.0
"""Clocks of hosts differ by less, and a job that has run out of time begins nothing new for longer."""
STOPPED_S: Final = 30.0
"""For so long workers that are to be started again may still write: torchrun kills them then."""
STALE_S: Final = 3600.0
"""A dump whose latest operation is older than the latest of all by so much is old: timeouts are shorter."""
_IN_PATH: Final = re.compile(r"(?:^|[^a-z])(?:attempt|restart|retry)[ _.-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_Place = tuple[int, str, int]
"""Rank, group, group rank."""


def attempt_in(path: str) -> int | None:
    """The number of the attempt that a path names, None if it names none."""
    found = _IN_PATH.findall(path)
    return int(found[-1]) if found else None


def last_in_paths(paths: Iterable[str]) -> int | None:
    """The number of the last attempt, None if these paths do not name several."""
    known = {number for path in paths if (number := attempt_in(path)) is not None}
    return max(known) if len(known) > 1 else None


def last_attempt(logs: Sequence[Log]) -> tuple[list[Log], bool]:
    """Of each log what belongs to the last attempt that says anything, and whether there is more of earlier ones.

    Raises:
        UsageError: Two logs are of different attempts, and nothing says which one is later.
    """
    if across_new_year(at_s for log in logs for at_s in _times_s(log)):
        logs = [_in_order(log) for log in logs]
    standings = [one for log in logs for one in log.standings]
    if any(one.at_s >= 0 for one in standings):
        times_s = [at_s for log in logs for at_s in _times_s(log)]
        begins_s = sorted({*_by_timeouts(standings), *_by_counters(standings), *_by_launchers(logs)})
        attempts = sorted({bisect_right(begins_s, at_s) for at_s in times_s if at_s >= 0})
        if len(attempts) < 2:
            return list(logs), False
        return [_since(log, begins_s[attempts[-1] - 1]) for log in logs], True
    found = [_of_last_part(log) for log in logs]
    kept = [log for log, _ in found]
    _refuse_contradictions(kept)
    return kept, any(is_cut for _, is_cut in found)


def _times_s(log: Log) -> list[float]:
    return [*(one.at_s for one in log.standings), *(one.at_s for one in log.facts), *(r.at_s for r, _ in log.reports)]


def _parts_of(log: Log) -> list[int]:
    return [*(one.part for one in log.standings), *(one.part for one in log.facts), *(part for _, part in log.reports)]


def _in_order(log: Log) -> Log:
    """With the times of January behind those of December."""

    def later(at_s: float) -> float:
        return at_s + YEAR_S if 0 <= at_s < YEAR_S / 2 else at_s

    standings = []
    for one in log.standings:
        op = one.timed_out and replace(one.timed_out, at_s=later(one.timed_out.at_s))
        standings.append(replace(one, at_s=later(one.at_s), timed_out=op))
    return replace(
        log,
        standings=standings,
        facts=[replace(one, at_s=later(one.at_s)) for one in log.facts],
        reports=[(replace(one, at_s=later(one.at_s)), part) for one, part in log.reports],
        xids=[replace(one, at_s=later(one.at_s)) for one in log.xids],
        restarts_s=[later(at_s) for at_s in log.restarts_s],
    )


def _by_timeouts(standings: Sequence[Standing]) -> list[float]:
    """When attempts began, by what began after another operation had run out of time."""
    begins_s, first_s = [], None
    ops = {one.timed_out for one in standings if one.timed_out and one.timed_out.at_s >= 0}
    for op in sorted(ops, key=lambda op: op.at_s):
        if first_s is None:
            first_s = op.at_s
        elif op.began_s > first_s + SLACK_S:
            begins_s.append(op.began_s - SLACK_S)
            first_s = op.at_s
    return begins_s


def _by_counters(standings: Sequence[Standing]) -> list[float]:
    """Times between two lines of a rank of which the later one has enqueued or completed less."""
    of: dict[_Place, list[Standing]] = {}
    for one in standings:
        if one.at_s >= 0:
            of.setdefault((one.rank, one.group, one.group_rank), []).append(one)
    pairs = [pair for mine in of.values() for pair in pairwise(sorted(mine, key=lambda one: one.at_s))]
    return [(one.at_s + later.at_s) / 2 for one, later in pairs if later.at_s > one.at_s and _goes_back(one, later)]


def _by_launchers(logs: Sequence[Log]) -> list[float]:
    return [at_s + STOPPED_S for log in logs for at_s in log.restarts_s if at_s >= 0]


def _goes_back(one: Standing, later: Standing) -> bool:
    return later.enqueued < one.enqueued or later.completed < one.completed


def _since(log: Log, at_s: float) -> Log:
    """What a log says from then on. What has no time is kept."""
    return replace(
        log,
        standings=[one for one in log.standings if one.at_s < 0 or one.at_s >= at_s],
        facts=[one for one in log.facts if one.at_s < 0 or one.at_s >= at_s],
        reports=[(one, part) for one, part in log.reports if one.at_s < 0 or one.at_s >= at_s],
        xids=[one for one in log.xids if one.at_s < 0 or one.at_s >= at_s],
    )


def _of_last_part(log: Log) -> tuple[Log, bool]:
    """What a log says behind the last line that starts the workers again, and since counters last went back.

    Where nothing is said there, what was said before.

    Returns:
        That, and whether there is more before it.
    """
    parts = _parts_of(log)
    part = max(parts, default=0)
    is_cut = min(parts, default=0) < part
    standings: dict[_Place, Standing] = {}
    for one in log.standings:
        place = one.rank, one.group, one.group_rank
        before = standings.get(place)
        if one.part != part:
            continue
        if before and _goes_back(before, one):
            standings, before, is_cut = {}, None, True
        standings[place] = replace(one, timed_out=one.timed_out or (before.timed_out if before else None))
    return replace(
        log,
        standings=list(standings.values()),
        facts=[one for one in log.facts if one.part == part],
        reports=[(one, at) for one, at in log.reports if at == part],
        xids=[one for one in log.xids if one.part == part],
    ), is_cut


def _refuse_contradictions(logs: Sequence[Log]) -> None:
    """At its end a rank stands at one place on a group, in whichever log that is written."""
    known: dict[_Place, Standing] = {}
    for log in logs:
        for one in log.standings:
            other = known.setdefault((one.rank, one.group, one.group_rank), one)
            if (other.enqueued, other.completed) != (one.enqueued, one.completed):
                raise UsageError(
                    f"these logs are of several attempts, and nothing says which one is the last: by one of them rank "
                    f"{one.rank} has enqueued {other.enqueued} operations, by another one {one.enqueued}",
                    mend="give the logs of one attempt only",
                )


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
