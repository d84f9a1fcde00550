"""What all logs of a job say, put together: facts of ranks, reports of libraries and drivers, and how large the job is.

A world is as large as some line says, and not as many as have written. Where nothing stands out among the ranks that
are known, and their number is odd, the one that is missing has a number beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

from whichrank.intake.ends_of_ranks import with_ends
from whichrank.intake.facts import SIGBUS, SIGKILL, Fact, Xid, joined, without_survived
from whichrank.intake.kernel_log import is_fault, ranks_killed, ranks_of
from whichrank.intake.log_time import UNTIMED
from whichrank.intake.logs import Log
from whichrank.intake.node_errors import reports_of
from whichrank.intake.plain_text import for_people
from whichrank.intake.ras import Ras
from whichrank.intake.standings import Standing
from whichrank.model.reports import Report, Told

SLACK_S: Final = 60.0
"""By so much clocks of hosts differ, at most, and a launcher sees an end late."""
CORRUPTED: Final = "the kernel ended it since its memory is damaged"
ONE_RUN_S: Final = 2 * 3600.0
"""The ends of one run are not further apart: timeouts are shorter."""


@dataclass(frozen=True)
class Said:
    """What logs say beside operations.

    Attributes:
        facts: By rank.
        reports: Of libraries and drivers.
        last_s: The latest time in them, see `log_time`.
        gave_up_s: When the first rank gave up an operation, on the same clock.
        world_size: Ranks of the job, as far as lines say it; 0: they do not.
        remarks: What cannot be said of a rank, for the user.
        is_world_known: Some line says how many ranks there are; else there may be more.
    """

    facts: Mapping[int, Fact] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()
    last_s: float = UNTIMED
    gave_up_s: float = UNTIMED
    world_size: int = 0
    remarks: tuple[str, ...] = ()
    is_world_known: bool = True


def said_by(logs: Sequence[Log], polls: Sequence[Ras], found: Iterable[Report] = ()) -> Said:
    """What these logs and looks of RAS say, of one attempt.

    Args:
        logs: Of one attempt.
        polls: Looks of RAS.
        found: What other files report.
    """
    of_logs = [fact for log in logs for fact in log.facts]
    facts = joined([*of_logs, *(fact for poll in polls for fact in poll.facts)])
    standings = [one for log in logs for one in log.standings]
    run = _run_of(facts, standings)
    for rank, one in ranks_killed((one for log in logs for one in log.killed if run.has(one.at_s)), facts).items():
        fact = facts[rank]
        ended_s = fact.at_s if fact.has_ended else one.at_s
        facts[rank] = replace(
            fact, lacked_memory=True, status=SIGKILL if fact.status < 0 else fact.status, at_s=ended_s
        )
    places = {rank: place for log in logs for rank, place in log.places.items()}
    ended, unknown = with_ends([one for log in logs for one in log.ends], facts, places)
    facts |= ended
    for rank in ranks_killed((one for log in logs for one in log.corrupted if run.has(one.at_s)), facts):
        facts[rank] = replace(facts[rank], status=SIGBUS, words=(*facts[rank].words, CORRUPTED))
    facts = without_survived(_of_this_run(facts, _run_of(facts, standings)))
    buses = {rank: fact.bus for rank, fact in facts.items() if fact.bus}
    reports = [*found, *(report for log in logs for report in log.reports)]
    hosts = {rank: host for rank, (host, _) in places.items() if host}
    hosts |= {rank: fact.host for rank, fact in facts.items() if fact.host}
    of_nodes, of_no_rank = reports_of((one for log in logs for one in log.node_errors if run.has(one.at_s)), hosts)
    reports += of_nodes
    unknown += of_no_rank
    for xid in (xid for log in logs for xid in log.xids):
        if not run.has(xid.at_s):
            if is_fault(xid):
                unknown.append(f"the kernel reports {_in_words(xid)}; by its time that was {run.when(xid.at_s)}")
            continue
        ranks = ranks_of(xid, facts, buses)
        for rank in ranks if len(ranks) == 1 else ():
            facts[rank] = replace(facts[rank], words=(*facts[rank].words, str(xid)))
        if not is_fault(xid):
            continue
        if ranks:
            reports.append(Report(Told.DEVICE_ERROR, tuple(ranks), _in_words(xid), at_s=xid.at_s))
        else:
            unknown.append(f"the kernel reports {_in_words(xid)}; no line says whose device that is")
    if silent := _without_answer(polls):
        reports.append(silent)
    waiting = {one.rank for one in standings if one.timed_out}
    gave_up = [one.timed_out.at_s for one in standings if one.timed_out and one.timed_out.at_s >= 0]
    gave_up = gave_up or [facts[rank].at_s for rank in waiting if rank in facts and facts[rank].at_s >= 0]
    times = [*gave_up, *(fact.at_s for fact in facts.values()), *(one.at_s for one in standings)]
    mentioned = max([*facts, *(log.most_rank for log in logs), *(r for one in reports for r in one.ranks)], default=-1)
    stated = max([*(fact.world_size for fact in facts.values()), *(poll.world_size for poll in polls)], default=0)
    return Said(
        facts, _distinct(reports), max(times, default=UNTIMED), min(gave_up, default=UNTIMED),
        max(stated, mentioned + 1, _one_beyond(standings, mentioned + 1) if not stated else 0),
        tuple(dict.fromkeys((*unknown, *(text for log in logs for text in _remarks(log))))),
        is_world_known=bool(stated or polls or any(log.world_size for log in logs)),
    )  # fmt: skip


class _Run(NamedTuple):
    """When what matters to a run happened: from when on, and until its first rank gave up; see `log_time`."""

    since_s: float
    until_s: float

    def has(self, at_s: float) -> bool:
        """May that have led to what happened? It may if it is not known when it was."""
        return at_s < 0 or self.since_s <= at_s <= self.until_s

    def when(self, at_s: float) -> str:
        """The same of what cannot, in words."""
        return "before this run" if at_s < self.since_s else "after ranks had given up"


def _run_of(facts: Mapping[int, Fact], standings: Iterable[Standing]) -> _Run:
    """A run, whose log may have been written on behind that of an earlier one.

    Who ended before what the others ran out of time in had begun could not have taken part in what they completed
    since. Where nothing has run out of time, ends that are hours apart are of several runs, and the last one counts.
    """
    ops = [op for one in standings if (op := one.timed_out)]
    began_s = min((op.began_s for op in ops if op.began_s >= 0), default=UNTIMED)
    if began_s >= 0:
        gave_up_s = min(op.at_s for op in ops if op.at_s >= 0)
        return _Run(began_s - SLACK_S, gave_up_s + SLACK_S)
    times = sorted(fact.at_s for fact in facts.values() if fact.has_ended and fact.at_s >= 0)
    since_s = max((later for one, later in pairwise(times) if later - one > ONE_RUN_S), default=UNTIMED)
    return _Run(since_s, math.inf)


def _of_this_run(facts: Mapping[int, Fact], run: _Run) -> dict[int, Fact]:
    """Facts without ends of an earlier run."""
    return {
        rank: replace(fact, status=-1, exception="", is_dead=False, lacked_memory=False, words=(), at_s=UNTIMED)
        if fact.has_ended and 0 <= fact.at_s < run.since_s
        else fact
        for rank, fact in facts.items()
    }


def _without_answer(polls: Sequence[Ras]) -> Report | None:
    """Ranks that do not answer RAS, in the last look and in the one before, if there is one."""
    looks = list({one.timestamp or f"#{place}": one for place, one in enumerate(polls)}.values())[-2:]
    looks.sort(key=lambda one: one.timestamp)
    dead = {fact.rank for one in looks for fact in one.facts if fact.is_dead}
    ranks = set.intersection(*(set(one.unresponsive) for one in looks)) - dead if looks else set()
    if not ranks:
        return None
    waiting = tuple(rank for rank in range(looks[-1].world_size) if rank not in looks[-1].unresponsive)
    return Report(Told.NO_ANSWER, tuple(sorted(ranks)), "NCCL RAS", waiting, seq=len(looks))


def _remarks(log: Log) -> tuple[str, ...]:
    return (*log.remarks, *map(_warned, log.warnings))


def _warned(text: str) -> str:
    return for_people(text, 256)


def _in_words(xid: Xid) -> str:
    return for_people(
        f"Xid {xid.number} of {xid.device}" + (f" ({xid.words.strip()})" if xid.words.strip() else ""), 160
    )


def _distinct(reports: Iterable[Report]) -> tuple[Report, ...]:
    """Each device and number once: a driver repeats itself."""
    return tuple({(one.told, one.ranks, one.text): one for one in reports}.values())


def _one_beyond(standings: Sequence[Standing], world: int) -> int:
    """One more than the ranks that are known, if their number is odd and all of them wait in the same operation."""
    waiting = {one.rank for one in standings if one.timed_out}
    seqs = {one.timed_out.seq for one in standings if one.timed_out}
    is_odd = world > 2 and world % 2 == 1
    return world + 1 if is_odd and len(waiting) == world and len(seqs) == 1 else 0
