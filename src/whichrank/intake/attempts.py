"""Attempts of one job: after a failure its launcher starts it again, and what several attempts wrote lies together.

What ranks did in one attempt says nothing about another: counters begin anew, and another rank may be at fault. So what
was read is told apart by attempt, and each is looked at alone. Attempts are told apart by

- a number in the path, as `torchrun --log-dir` makes it: `attempt_1/0/stderr.log`;
- a line in which the launcher says that it starts the workers again;
- time: an operation that began after another one had run out of time belongs to a later attempt, since such a timeout
  ends the job;
- counters: those of one rank on one group never go back.

What is no log is of the last attempt, unless its path says otherwise; of dumps see `dumps_of_attempts`. Where logs have
no times, only one log can be told apart: which parts of several belong together nothing says, so there the last part of
each is taken.

Example: rank 0 writes at 03:00 and at 05:00 that an operation has run for 10 minutes. The second operation began at
04:50, so whatever was written after 04:49 is of another attempt than what was written before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from whichrank.errors import UsageError
from whichrank.intake.log_time import YEAR_S, across_new_year
from whichrank.intake.logs import Log
from whichrank.intake.standings import Standing

SLACK_S: Final = 60.0
"""Clocks of hosts differ by less, and a job that has run out of time begins nothing new for longer."""
STOPPED_S: Final = 30.0
"""For so long workers that are to be started again may still write: torchrun kills them then."""
MOST: Final = 64
"""Attempts that are looked at, the last ones."""
LEAST: Final = 2
"""Attempts, to be told apart."""
_IN_PATH: Final = re.compile(r"(?:^|[^a-z])(?:attempt|restart|retry)[ _.-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_Place = tuple[int, str, int]
"""Rank, group, group rank."""


@dataclass(frozen=True)
class Attempts:
    """What was read, by attempt.

    Attributes:
        contents: Of each attempt, the first one first: what is of it, by its place among all. At least one.
        has_more: Something is of an earlier attempt, and of which one is not known: it is in none.
        is_started_again: The job was started again behind the last of them, and nothing is said of that attempt.
        unknown: Dumps of which it is not known of which attempt they are: they are in none.
    """

    contents: tuple[dict[int, object], ...]
    has_more: bool = False
    is_started_again: bool = False
    unknown: Mapping[int, object] = field(default_factory=dict)


def attempt_in(path: str) -> int | None:
    """The number of the attempt that a path names, None if it names none."""
    found = _IN_PATH.findall(path)
    return int(found[-1]) if found else None


def told_apart(held: Sequence[tuple[str, object]]) -> Attempts:
    """What was read, by attempt.

    Args:
        held: Of each file or part of one its path and its content, None if it has none that is known.

    Raises:
        UsageError: Two logs are of different attempts, and nothing says which one is later.
    """
    of_number: dict[int | None, dict[int, object]] = {}
    for place, (path, content) in enumerate(held):
        if content is not None:
            of_number.setdefault(attempt_in(path), {})[place] = content
    shared = of_number.pop(None, {})
    if len(of_number) < LEAST:
        return _told_apart({place: held[place][1] for one in (shared, *of_number.values()) for place in one})
    known = sorted(one for one in of_number if one is not None)
    of_number = {one: of_number[one] for one in known}
    if (begins_s := _begins_of(list(of_number.values()))) is not None:
        for place in [place for place, content in shared.items() if isinstance(content, Log)]:
            log = shared.pop(place)
            assert isinstance(log, Log)
            for one, part in zip(known, _by_time(log, begins_s, len(known)), strict=True):
                of_number[one][place] = part
    of_number[known[-1]].update(shared)
    found = [_told_apart(contents) for contents in of_number.values()]
    return Attempts(
        tuple(contents for one in found for contents in one.contents)[-MOST:], any(one.has_more for one in found),
        found[-1].is_started_again,
    )  # fmt: skip


def _begins_of(contents: Sequence[Mapping[int, object]]) -> list[float] | None:
    """When attempts began whose files are known, but for the first one; None if that is not known of each."""
    times = [[at_s for log in one.values() if isinstance(log, Log) for at_s in all_times_s(log)] for one in contents]
    begins_s = [min(one, default=-1.0) for one in times]
    is_known = all(at_s >= 0 for at_s in begins_s) and begins_s == sorted(begins_s)
    return begins_s[1:] if is_known else None


def _told_apart(contents: Mapping[int, object]) -> Attempts:
    """The same where no path says it."""
    logs = {place: content for place, content in contents.items() if isinstance(content, Log)}
    others = {place: content for place, content in contents.items() if place not in logs}
    if across_new_year(at_s for log in logs.values() for at_s in all_times_s(log)):
        logs = {place: _in_order(log) for place, log in logs.items()}
    has_times = any(one.at_s >= 0 for log in logs.values() for part in _parts(log) for one in part.standings)
    found = _of_times(logs) if has_times else _of_parts(logs)
    *earlier, last = found.contents
    return replace(found, contents=(*earlier, {**others, **last})[-MOST:])


def _parts(log: Log) -> list[Log]:
    return [*log.before, log]


def all_times_s(log: Log) -> list[float]:
    """When something was said in any part of it."""
    return [at_s for part in _parts(log) for at_s in _times_of_part(part)]


def _times_of_part(part: Log) -> list[float]:
    """When something was said in it; of one in which nothing has a time, when the launcher began it."""
    times_s = [one.at_s for one in part.standings]
    times_s += [one.at_s for one in part.facts]
    times_s += [one.at_s for one in part.reports]
    found = [at_s for at_s in times_s if at_s >= 0]
    return found or ([part.begun_s + STOPPED_S] if part.begun_s >= 0 and part.last_says_something else [])


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
        reports=[replace(one, at_s=later(one.at_s)) for one in log.reports],
        xids=[replace(one, at_s=later(one.at_s)) for one in log.xids],
        killed=[one._replace(at_s=later(one.at_s)) for one in log.killed],
        corrupted=[one._replace(at_s=later(one.at_s)) for one in log.corrupted],
        node_errors=[replace(one, at_s=later(one.at_s)) for one in log.node_errors],
        ends=[replace(one, at_s=later(one.at_s)) for one in log.ends],
        restarts_s=[later(at_s) for at_s in log.restarts_s],
        begun_s=later(log.begun_s),
        before=[_in_order(part) for part in log.before],
    )


# ---- by time ---------------------------------------------------------------------------------------------------------


def _of_times(logs: Mapping[int, Log]) -> Attempts:
    """By when something was said. An attempt of which nothing is said is none."""
    begins_s = _begins_s(logs.values())
    times_s = [at_s for log in logs.values() for at_s in all_times_s(log)]
    said = sorted({bisect_right(begins_s, at_s) for at_s in times_s})
    begins_s = [begins_s[one - 1] for one in said[1:]][-MOST:]
    of: list[dict[int, object]] = [{} for _ in range(len(begins_s) + 1)]
    for place, log in logs.items():
        for attempt, part in enumerate(_by_time(log, begins_s, len(of))):
            of[attempt][place] = part
    restarts_s = [at_s + STOPPED_S for log in logs.values() for at_s in log.restarts_s if at_s >= 0]
    is_started_again = max(restarts_s, default=0.0) > max(times_s, default=0.0) or _ends_with_a_restart(logs.values())
    return Attempts(tuple(of[-MOST:]), len(of) > MOST, is_started_again)


def _begins_s(logs: Iterable[Log]) -> list[float]:
    """When attempts began, but for the first one.

    Timeouts and counters show between which two moments that was; where a launcher says it, they add nothing.
    """
    standings = [one for log in logs for part in _parts(log) for one in part.standings]
    found = sorted(at_s + STOPPED_S for log in logs for at_s in log.restarts_s if at_s >= 0)
    for since_s, until_s, at_s in sorted([*_by_timeouts(standings), *_by_counters(standings)]):
        if not any(since_s < known_s < until_s for known_s in found):
            found.append(at_s)
    return sorted(found)


def _by_timeouts(standings: Sequence[Standing]) -> list[tuple[float, float, float]]:
    """Between which moments attempts began, and when: by what began after another operation had run out of time."""
    found, first_s = [], None
    ops = {one.timed_out for one in standings if one.timed_out and one.timed_out.at_s >= 0}
    for op in sorted(ops, key=lambda op: op.at_s):
        if first_s is None:
            first_s = op.at_s
        elif op.began_s > first_s + SLACK_S:
            found.append((first_s, op.began_s, op.began_s - SLACK_S))
            first_s = op.at_s
    return found


def _by_counters(standings: Sequence[Standing]) -> list[tuple[float, float, float]]:
    """The same by two lines of a rank of which the later one has enqueued or completed less."""
    of: dict[_Place, list[Standing]] = {}
    for one in standings:
        if one.at_s >= 0:
            of.setdefault((one.rank, one.group, one.group_rank), []).append(one)
    pairs = [pair for mine in of.values() for pair in pairwise(sorted(mine, key=lambda one: one.at_s))]
    return [
        (one.at_s, later.at_s, (one.at_s + later.at_s) / 2)
        for one, later in pairs
        if later.at_s > one.at_s and _goes_back(one, later)
    ]


def _goes_back(one: Standing, later: Standing) -> bool:
    return later.enqueued < one.enqueued or later.completed < one.completed


def _by_time(log: Log, begins_s: Sequence[float], count: int) -> list[Log]:
    """What a log says of each attempt; what has no time is of the one of which the latest is that stands near it.

    Args:
        log: With its parts.
        begins_s: When attempts began, but for the first one.
        count: Of attempts.
    """
    ranks = {name: max(getattr(part, name) for part in _parts(log)) for name in ("most_rank", "world_size")}
    found = [Log(**ranks) for _ in range(count)]
    latest = 0
    for part in _parts(log):
        if times_s := _times_of_part(part):
            latest = bisect_right(begins_s, max(times_s))
        elif part is log:
            latest = count - 1
        _distribute(part, found, begins_s, latest)
        of_no_time = found[latest]
        of_no_time.counted |= part.counted
        of_no_time.warnings += part.warnings
        of_no_time.places |= part.places
        of_no_time.remarks += part.remarks
        of_no_time.polls += part.polls
    return found


def _distribute(part: Log, found: Sequence[Log], begins_s: Sequence[float], untimed: int) -> None:
    """What a part says to the attempts of which it is; what has no time to the attempt `untimed`."""

    def attempt_at(at_s: float) -> Log:
        return found[bisect_right(begins_s, at_s) if at_s >= 0 else untimed]

    for fact in part.facts:
        attempt_at(fact.at_s).facts.append(fact)
    for xid in part.xids:
        attempt_at(xid.at_s).xids.append(xid)
    for one in part.killed:
        attempt_at(one.at_s).killed.append(one)
    for one in part.corrupted:
        attempt_at(one.at_s).corrupted.append(one)
    for error in part.node_errors:
        attempt_at(error.at_s).node_errors.append(error)
    for end in part.ends:
        attempt_at(end.at_s).ends.append(end)
    for standing in part.standings:
        attempt_at(standing.at_s).standings.append(standing)
    for report in part.reports:
        attempt_at(report.at_s).reports.append(report)


# ---- without times ---------------------------------------------------------------------------------------------------


def _of_parts(logs: Mapping[int, Log]) -> Attempts:
    """By the lines that start the workers again, and by counters that go back."""
    lives = {place: [one for part in _parts(log) for one in _lives_in(part)] for place, log in logs.items()}
    for place, log in logs.items():  # a job has as many ranks in each attempt
        ranks = {name: max(getattr(part, name) for part in _parts(log)) for name in ("most_rank", "world_size")}
        lives[place] = [replace(one, **ranks) for one in lives[place]]
    is_started_again = _ends_with_a_restart(logs.values())
    if len(lives) == 1:
        ((place, mine),) = lives.items()
        return Attempts(tuple({place: one} for one in mine) or ({},), is_started_again=is_started_again)
    last = {place: mine[-1] for place, mine in lives.items() if mine}
    _refuse_contradictions(last.values())
    return Attempts((dict(last),), any(len(mine) > 1 for mine in lives.values()), is_started_again)


def _lives_in(part: Log) -> list[Log]:
    """What a part says, anew wherever counters go back; what is no counter is of the last one."""
    if not part.last_says_something:
        return []
    found: list[dict[_Place, Standing]] = [{}]
    for one in part.standings:
        place = one.rank, one.group, one.group_rank
        before = found[-1].get(place)
        if before and _goes_back(before, one):
            found.append({})
            before = None
        found[-1][place] = replace(one, timed_out=one.timed_out or (before.timed_out if before else None))
    *earlier, last = (list(life.values()) for life in found)
    return [*(Log(standings=life) for life in earlier), replace(part, standings=last, before=[])]


def _ends_with_a_restart(logs: Iterable[Log]) -> bool:
    """Do all logs that say something end with a line that starts the job again?"""
    known = [log for log in logs if log.says_something]
    return bool(known) and not any(log.last_says_something for log in known)


def _refuse_contradictions(logs: Iterable[Log]) -> None:
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
