"""When a validation may pause training without being asked: of what, how often.

Off unless the user says so. What is proved is an alert that names ranks or links, or that iterations take longer and
nothing explains it. What was validated lately is not validated again: training would stand still more than it was slow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from whichrank.act.judgement import LEAST
from whichrank.model.incident import Cause, Incident
from whichrank.model.job_now import JobNow

EVERY_S: Final = 600.0
"""Between two validations that nobody has asked for: ten seconds of pause each are 1.7 % at most."""
ALL_OF: Final = 256
"""Ranks of a job that are all measured; of a larger one those that share a communicator with a suspect."""


class Policy:
    """Of one job.

    Args:
        is_on: Whether training may be paused without being asked.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._wanted: Incident | None = None
        self._validated: set[str] = set()
        self._latest_s = -EVERY_S

    def note(self, incidents: Iterable[Incident]) -> None:
        """Incidents are new or have changed."""
        for incident in incidents if self._is_on else ():
            if self._wanted is not None and incident.id == self._wanted.id and incident.status != "open":
                self._wanted = None  # it is over
            elif self._is_to_be_proved(incident):
                self._wanted = incident

    def wants(self, now_s: float) -> bool:
        """Whether an incident is to be validated now."""
        return self._wanted is not None and now_s - self._latest_s >= EVERY_S

    def take(self, now_s: float) -> Incident | None:
        """The incident that is to be validated now, once."""
        if self._wanted is None or not self.wants(now_s):
            return None
        incident, self._wanted, self._latest_s = self._wanted, None, now_s
        self._validated.add(incident.id)
        return incident

    def _is_to_be_proved(self, incident: Incident) -> bool:
        if incident.kind != "slow" or incident.status != "open" or incident.id in self._validated:
            return False
        is_unexplained = incident.cause == Cause.UNKNOWN and not (incident.candidates or incident.reason)
        return is_unexplained or (incident.severity == "alert" and bool(incident.culprits or incident.links))


def to_be_measured(incident: Incident, job: JobNow) -> tuple[int, ...]:
    """Ranks that are measured for an incident: those that it names, and others to hold them against.

    Of a large job in which nobody is named those are measured whose communicators take longer than comparable ones
    (Greyhound, section 4.3); all, if there are none.
    """
    if len(job.ranks) <= ALL_OF:
        return job.ranks
    named = {culprit.rank for culprit in incident.culprits}
    named |= {rank for link in incident.links for rank in (link.src, link.dst)}
    if not named:
        return _of_long_groups(job)
    together = {rank for group in job.groups if named & set(group.members) for rank in group.members[:ALL_OF]}
    return tuple(sorted(together | named))


def _of_long_groups(job: JobNow) -> tuple[int, ...]:
    """Ranks of the communicators that take longest, as many as may be measured at once; all, if there are none."""
    ranks: set[int] = set()
    for members in job.long_groups:
        if len(ranks.union(members)) <= ALL_OF and set(members) <= job.agent_of.keys():
            ranks.update(members)
    if 0 < len(ranks) < LEAST:
        few = frozenset(ranks)
        for group in job.groups:
            if few & set(group.members) and len(ranks.union(group.members)) <= ALL_OF:
                ranks.update(group.members)
    return tuple(sorted(ranks)) or job.ranks
