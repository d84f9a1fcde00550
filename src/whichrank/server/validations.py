"""Carries a validation to the ranks and back: what is asked goes to all agents again and again, what they say comes in.

One at a time. While none is under way this costs nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from whichrank.act.judgement import LEAST, judge
from whichrank.act.pause import Pause, Phase
from whichrank.act.policy import Policy, to_be_measured
from whichrank.act.validation import Validation, links_of
from whichrank.model.commands import HoldGate
from whichrank.model.incident import Incident
from whichrank.model.job_now import JobNow
from whichrank.model.telemetry import GATE_REPORTED, Batch
from whichrank.server.proved import Name, with_pause, with_result
from whichrank.server.requests import MOST_OF_AN_ID
from whichrank.server.validations_file import MOST_SUSPECTS, Asked, Validated, validated

TELL_EVERY_S: Final = 0.1
"""Agents open gates that they are not told to hold for 0.4 s."""
SIZES: Final = (1 << 20, 4 << 20, 16 << 20, 64 << 20)
"""Bytes of messages on links: the smallest and the largest of Greyhound (section 6), and small ones before them. Of a
link that needs longer for one than there is time no larger ones are asked: then a small one says how quick it is."""
MOST_RANKS: Final = 4096
"""Agents open gates of which they hear nothing for 0.4 s. To take the results of a test over links takes 0.15 s of so
many ranks, and 0.5 s of twice as many."""
MOST_PAUSES: Final = 1 << 20
"""Numbers of pauses, of which one is drawn: a job may have been paused by an analyzer before this one."""


class Validations:
    """None is under way at first.

    Args:
        may_pause: Training may be paused without being asked.
        name: Says of a rank that is blamed where it is.
    """

    def __init__(self, *, may_pause: bool, name: Name) -> None:
        self._name = name
        self._policy = Policy(is_on=may_pause)
        self._asked: Asked | None = None
        self._validation: Validation | None = None
        self._refused: Validated | None = None
        self._is_pause_said = False
        self._incident: Incident | None = None  # the one that is being proved
        self._proved: dict[str, _Proof] = {}  # by the id of an incident
        self._agent_of: Mapping[int, str] = {}
        self._ranks_of: Mapping[str, Sequence[int]] = {}
        self._told_s = 0.0
        self._number = secrets.randbelow(MOST_PAUSES)

    @property
    def is_under_way(self) -> bool:
        """Whether gates are held, or are to be."""
        return self._validation is not None

    @property
    def asked_id(self) -> str:
        """By which who asked finds the result; empty if nobody did."""
        return self._asked.id if self._asked is not None else ""

    def has_paused(self) -> bool:
        """Whether all ranks wait, once."""
        is_closed = self._validation is not None and self._validation.pause.phase is Phase.CLOSED
        is_news, self._is_pause_said = is_closed and not self._is_pause_said, self._is_pause_said or is_closed
        return is_news

    def give_up(self, why: str, now_s: float) -> None:
        """Let all ranks go on."""
        if self._validation is not None:
            self._validation.pause.open(why, now_s)

    def drop(self, why: str) -> None:
        """Ask and tell nothing more: ranks whose gates nobody holds go on by themselves."""
        if self._asked is not None:
            self._refused = Validated(asked=self._asked, paused_s=0.0, problem=why)
        self._validation = self._asked = None

    def note(self, incidents: Sequence[Incident]) -> list[Incident]:
        """Incidents are new or have changed: one of them may have to be proved.

        Returns:
            The same, with what is known of them by validations.
        """
        self._policy.note(incidents)
        for incident in incidents:
            if self._incident is not None and incident.id == self._incident.id:
                self._incident = incident
        return [self._with_proof(one) for one in incidents]

    def _with_proof(self, incident: Incident) -> Incident:
        """An incident with what its validation says, which may have been made before anybody was named."""
        proof = self._proved.get(incident.id)
        if proof is None:
            return incident
        is_about_it = proof.names_somebody or not _names_somebody(incident)
        if is_about_it or proof.result.slow_ranks or proof.result.slow_links:
            return with_result(incident, proof.result, self._name)
        return with_pause(incident, proof.result)

    def are_wanted(self, now_s: float) -> bool:
        """Whether an incident is to be proved now."""
        return self._policy.wants(now_s)

    def begin(self, asked: Asked | None, job_now: Callable[[], JobNow], now_s: float) -> None:
        """Begin the one that is asked for, or else the one that an incident wants.

        Args:
            asked: By a user.
            job_now: The job as it is now.
            now_s: And when that is.
        """
        incident = None
        if asked is None:
            incident = self._incident = self._policy.take(now_s)
            if incident is None:
                return
            asked = Asked(why=incident.id[:MOST_OF_AN_ID])
        self._asked, self._is_pause_said = asked, False
        job = job_now()
        if incident is not None:
            asked = msgspec.structs.replace(asked, suspects=to_be_measured(incident, job)[:MOST_SUSPECTS])
            self._asked = asked
        if problem := _why_not(asked, job):
            self.drop(problem)
            return
        self._number = self._number % MOST_PAUSES + 1
        pause = Pause(
            self._number,
            job.ranks,
            now_s,
            iteration_s=job.iteration_s,
            longest_s=asked.longest_s,
            beginnings=job.beginnings,
            stepped=job.stepped,
        )
        suspects = asked.suspects or job.ranks
        groups = [group for group in job.groups if set(group.members) & set(suspects) and group.backend == "gloo"]
        self._agent_of, self._ranks_of = job.agent_of, _by_agent(job.agent_of)
        self._validation = Validation(pause, suspects, links_of(groups, job.carried), asked.sizes or SIZES)
        self._told_s = -1.0

    def feed(self, batches: Iterable[Batch], now_s: float) -> None:
        """Take what agents say of gates."""
        rows = b"".join(batch.gates for batch in batches)
        if self._validation is not None and rows:
            self._validation.feed(np.frombuffer(rows, GATE_REPORTED), now_s)

    def lose(self, ranks: Iterable[int], now_s: float) -> None:
        """These ranks have ended: nobody waits for them."""
        if self._validation is not None:
            for rank in ranks:
                self._validation.pause.lose(rank, "has ended", now_s)

    def orders(self, now_s: float) -> dict[str, HoldGate]:
        """What agents are to be told now: of each what its own ranks are to do; none while it is early."""
        if self._validation is None or now_s - self._told_s < TELL_EVERY_S:
            return {}
        self._told_s = now_s
        self._validation.advance(now_s)
        return self._validation.orders(self._ranks_of)

    def take_result(self) -> tuple[Validated, Incident | None] | None:
        """What came of it, once, when it is over; and the incident that it was for, as it is now."""
        result = self._result()
        if result is None:
            return None
        incident, self._incident = self._incident, None
        if incident is not None:
            self._proved[incident.id] = _Proof(result, _names_somebody(incident))
            incident = with_result(incident, result, self._name)
        return result, incident

    def _result(self) -> Validated | None:
        if self._refused is not None:
            refused, self._refused = self._refused, None
            return refused
        validation, asked = self._validation, self._asked
        if validation is None or asked is None or not validation.is_over:
            return None
        self._validation = self._asked = None
        paused_s, problem = validation.pause.paused_s, validation.pause.problem
        measured = validation.measured
        named = {frozenset((link.src, link.dst)) for link in (self._incident.links if self._incident else ())}
        judged = judge(measured, self._agent_of, named)
        return validated(asked, judged, paused_s, problem, measured.left_out_links)


class _Proof(NamedTuple):
    """What came of a validation, and whether the incident that it was for named a rank or a link then."""

    result: Validated
    names_somebody: bool


def _names_somebody(incident: Incident) -> bool:
    return bool(incident.culprits or incident.links)


def _why_not(asked: Asked, job: JobNow) -> str:
    """Why a job cannot be measured so; empty if it can."""
    unknown = [rank for rank in asked.suspects if rank not in job.agent_of]
    if unknown:
        return f"rank {unknown[0]} is none that runs"
    if not job.ranks:
        return "no rank of this job is seen"
    if job.iteration_s <= 0:
        return "the iterations of this job are not known yet"
    if len(job.ranks) < LEAST:
        return f"of fewer than {LEAST} ranks none can be held against others"
    if len(job.ranks) > MOST_RANKS:
        return f"a job of more than {MOST_RANKS:,} ranks cannot be paused yet"
    return ""


def _by_agent(agent_of: Mapping[int, str]) -> dict[str, list[int]]:
    ranks: dict[str, list[int]] = {}
    for rank, agent in agent_of.items():
        ranks.setdefault(agent, []).append(rank)
    return ranks
