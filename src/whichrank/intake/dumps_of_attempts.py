"""Of which attempt of a job dumps of the Flight Recorder are that lie beside a log of several.

A process that is started again writes its dump over the one before, or not at all, so dumps of several attempts may lie
in one folder under names that say nothing of it. Two things tell:

- the operation in which a rank waits: the log says its number and when it began, and so does the dump;
- time: once one dump is known by its operation, the clock of the log and that of the dumps are compared, and each dump
  is of the first attempt that ended after its latest operation. The zone of a log's times is not known before.

Without times, a dump is of the attempt of another one if it has issued something after that one's first record, since
by then all processes of earlier attempts had ended. What neither tells is kept apart from all attempts.

Example: the log says that rank 3 has waited in operation 167 since 02:50 in one attempt, and in 40 since 04:50 in the
next. Rank 3's dump waits in 167 since 07:50 UTC: it is of the first one, and the log's clock is five hours behind. Rank
5's dump, which waits in nothing, ends at 09:49 UTC: that is 04:49 by the log, so it is of the second one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

import numpy as np

from whichrank.intake.attempts import SLACK_S, Attempts, all_times_s, attempt_in
from whichrank.intake.flight_dump import COMPLETED, Dump
from whichrank.intake.logs import Log

ZONE_S: Final = 900.0
"""Time zones differ from each other by multiples of this."""


def with_dumps_told_apart(found: Attempts, paths: Sequence[str], ranks: Sequence[int | None]) -> Attempts:
    """The attempts of a job, with each dump in its own.

    Args:
        found: Of logs; all dumps whose paths say nothing are in the last one.
        paths: Of all that was read, by place.
        ranks: The same of whose it is, None where that is not known.
    """
    last = found.contents[-1]
    dumps = {place: one for place, one in last.items() if isinstance(one, Dump) and attempt_in(paths[place]) is None}
    is_one = len(found.contents) == 1 and not found.is_started_again
    if is_one or not dumps:
        return found
    logs = [[one for one in content.values() if isinstance(one, Log)] for content in found.contents]
    of = _attempts_of({place: (ranks[place], one) for place, one in dumps.items()}, logs)
    contents = [{place: one for place, one in content.items() if place not in dumps} for content in found.contents]
    unknown: dict[int, object] = {}
    for place, dump in dumps.items():
        attempt = of[place]
        (unknown if attempt is None else contents[attempt])[place] = dump
    return replace(found, contents=tuple(contents), unknown=unknown)


def _attempts_of(dumps: Mapping[int, tuple[int | None, Dump]], logs: Sequence[Sequence[Log]]) -> dict[int, int | None]:
    """Of each dump, by its place, the attempt; None if nothing tells.

    Args:
        dumps: By place, each with its rank.
        logs: Of each attempt.
    """
    known: dict[int, tuple[int, float | None]] = {}
    for place, (rank, dump) in dumps.items():
        fits = _by_operation(rank, dump, logs)
        if len({attempt for attempt, _ in fits}) == 1:
            known[place] = fits[0]
    behind = [by_s for _, by_s in known.values() if by_s is not None]
    if behind:
        return {place: _by_time(dump, median(behind), logs) for place, (_, dump) in dumps.items()}
    attempts = {attempt for attempt, _ in known.values()}
    if len(attempts) != 1:
        return {place: known[place][0] if place in known else None for place in dumps}
    (attempt,) = attempts
    since_ns = min(_first_ns(dumps[place][1]) for place in known)
    return {
        place: attempt if place in known or 0 < since_ns <= _latest_ns(dump) else None
        for place, (_, dump) in dumps.items()
    }


def _by_operation(rank: int | None, dump: Dump, logs: Sequence[Sequence[Log]]) -> list[tuple[int, float | None]]:
    """Attempts in which the rank has waited for what it waits for in the dump.

    Returns:
        Each with the time by which the log's clock is ahead of the dump's, None if the log has no times.
    """
    waits = _waits(dump)
    found = []
    for attempt, mine in enumerate(logs):
        ops = {(one.group, one.timed_out) for log in mine for one in log.standings if one.rank == rank}
        for group, op in ops:
            since_ns = waits.get((group, op.seq)) if op else None
            if op is None or since_ns is None:
                continue
            is_timed = op.began_s >= 0 and since_ns > 0
            ahead_s = op.began_s - since_ns / 1e9 if is_timed else None
            if ahead_s is None or _is_zone(ahead_s):
                found.append((attempt, ahead_s))
    return found


def _is_zone(ahead_s: float) -> bool:
    """Do clocks differ by this because they show the time of different zones?"""
    return abs((ahead_s + ZONE_S / 2) % ZONE_S - ZONE_S / 2) <= SLACK_S


def _waits(dump: Dump) -> dict[tuple[str, int], int]:
    """By group and number, the first collective of each group that is not complete, and when it was issued."""
    entries = dump.entries[(dump.entries["state"] != COMPLETED) & ~dump.entries["p2p"] & ~dump.entries["retired"]]
    found: dict[int, tuple[int, int]] = {}
    for group, seq, at_ns in zip(
        entries["group"].tolist(), entries["seq"].tolist(), entries["created_ns"].tolist(), strict=True
    ):
        found[group] = min(found.get(group, (seq, at_ns)), (seq, at_ns))
    return {(dump.groups[group].name, seq): at_ns for group, (seq, at_ns) in found.items()}


def _by_time(dump: Dump, ahead_s: float, logs: Sequence[Sequence[Log]]) -> int | None:
    """The first attempt that ended after the dump's latest operation.

    Args:
        dump: What one rank has left.
        ahead_s: By how much the log's clock is ahead of it.
        logs: Of each attempt.
    """
    latest_ns = _latest_ns(dump)
    if not latest_ns:
        return None
    at_s = latest_ns / 1e9 + ahead_s
    ends_s = [max((one for log in mine for one in all_times_s(log)), default=-1.0) for mine in logs]
    return next((attempt for attempt, end_s in enumerate(ends_s) if at_s <= end_s + SLACK_S), None)


def _latest_ns(dump: Dump) -> int:
    return int(dump.entries["created_ns"].max()) if len(dump.entries) else 0


def _first_ns(dump: Dump) -> int:
    times = dump.entries["created_ns"]
    return int(np.min(times[times > 0], initial=1 << 62))
