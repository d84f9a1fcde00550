"""What becomes of a finding: the life of an incident, and of a suspicion, each as a table.

An incident begins with a suspicion, of which nothing is said. It becomes a notice when ranks have waited for long, an
alert on hard evidence or at the timeout (`detect.hang.urgency_of`), and is over when the job has gone on or has ended.
`LIFE` has all of its transitions; `verdict.ledger` makes no other one.

How long something has been so decides what it is worth, and what a snapshot shows decides which of these times run on:
`WATCH` has that. A rule that reads one of the times is a method of `Policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from whichrank.detect.hang import Persistence
from whichrank.model.finding import Finding
from whichrank.model.incident import Cause, Incident

RECOVER_S: Final = 1.0
"""Nobody waits any more for so long: the job has gone on."""
SETTLE_S: Final = 0.9
"""A dying job is judged this long after the first death: the others' rings must have been read."""
READ_S: Final = 0.4
"""What happened so long ago has been reported, if rings are read closely."""


class State(Enum):
    """Of an incident."""

    SUSPECTED = auto()
    NOTICE = auto()
    ALERT = auto()
    RECOVERED = auto()
    FINAL = auto()


class Event(Enum):
    """What happens to an incident."""

    DUE = auto()
    """What is found is worth a notice."""
    URGENT = auto()
    """It is worth an alert."""
    EXPLAINED = auto()
    """Of what is slow a reason is found that is no fault."""
    OVER = auto()
    """The job has gone on."""
    ENDED = auto()
    """The job has ended, or no later word will come."""


LIFE: Final[Mapping[tuple[State, Event], State]] = {
    (State.SUSPECTED, Event.DUE): State.NOTICE,
    (State.SUSPECTED, Event.URGENT): State.ALERT,
    (State.NOTICE, Event.DUE): State.NOTICE,
    (State.NOTICE, Event.URGENT): State.ALERT,
    (State.ALERT, Event.DUE): State.ALERT,  # an alert is not taken back to a notice
    (State.ALERT, Event.URGENT): State.ALERT,
    (State.RECOVERED, Event.EXPLAINED): State.NOTICE,
    (State.NOTICE, Event.EXPLAINED): State.NOTICE,
    (State.ALERT, Event.EXPLAINED): State.NOTICE,
    (State.NOTICE, Event.OVER): State.RECOVERED,  # the notice is withdrawn
    (State.ALERT, Event.OVER): State.RECOVERED,
    (State.NOTICE, Event.ENDED): State.FINAL,
    (State.ALERT, Event.ENDED): State.FINAL,
    (State.RECOVERED, Event.DUE): State.NOTICE,  # it comes again soon: the same incident
    (State.RECOVERED, Event.URGENT): State.ALERT,
}
"""State and event -> the state after it. What is not here cannot happen."""


def state_of(incident: Incident | None) -> State:
    """Of an incident; without one it is a suspicion."""
    if incident is None:
        return State.SUSPECTED
    if incident.status == "open":
        return State.ALERT if incident.severity == "alert" else State.NOTICE
    return State.RECOVERED if incident.status == "recovered" else State.FINAL


def after(incident: Incident | None, event: Event) -> State:
    """The state of an incident after an event.

    Raises:
        ValueError: The event cannot happen to it: a fault of ours.
    """
    state = state_of(incident)
    if (state, event) not in LIFE:
        raise ValueError(f"an incident that is {state.name} cannot become {event.name}")
    return LIFE[state, event]


class Situation(Enum):
    """What a snapshot of the job shows, in the order in which it is asked."""

    CUT_OFF = auto()
    """No agent was heard lately: nothing is known."""
    SUSPENDED = auto()
    """All processes are suspended."""
    BEING_ENDED = auto()
    """A launcher or a user ends the ranks."""
    QUIET = auto()
    """Nobody waits longer than usual."""
    SUSPECT = auto()
    """Somebody does, and something is found."""


@dataclass(frozen=True)
class Effect:
    """What a situation does to what is remembered.

    Attributes:
        forgets: The suspicion, so that the next one begins anew.
        closely: Rings are read closely from now on, or not any more; None: as before.
        quiet: The time since which nobody waits runs, ends, or (None) goes on as it is.
        suspended: The same of the time since which all are suspended.
    """

    forgets: bool = False
    closely: bool | None = None
    quiet: bool | None = None
    suspended: bool | None = None


WATCH: Final[Mapping[Situation, Effect]] = {
    Situation.CUT_OFF: Effect(forgets=True),
    Situation.SUSPENDED: Effect(forgets=True, suspended=True),
    Situation.BEING_ENDED: Effect(suspended=False),
    Situation.QUIET: Effect(forgets=True, closely=False, quiet=True, suspended=False),
    Situation.SUSPECT: Effect(closely=True, quiet=False, suspended=False),
}


class Policy:
    """What is remembered between two snapshots of a job. All times in seconds on one clock, None: not so now.

    Attributes:
        suspicion: How long the same has been found; None: nothing is suspected.
        closely: Rings should be read closely.
        prior: The wait that a death or a failure may have ended.
        awake_s: When the job was resumed after all had been suspended; 0 never.
        over_s: What happened before this time the job has got over; 0 nothing.
    """

    def __init__(self) -> None:
        self.suspicion: Persistence | None = None
        self.closely = False
        self.prior: Finding | None = None
        self.awake_s = self.over_s = 0.0
        self._quiet_since_s: float | None = None
        self._suspended_since_s: float | None = None
        self._dying_since_s: float | None = None
        self._others_since_s: dict[str, float] = {}

    def enter(self, situation: Situation, now_s: float) -> None:
        """Take what a snapshot shows."""
        effect = WATCH[situation]
        if effect.forgets:
            self.suspicion = None
        if effect.closely is not None:
            self.closely = effect.closely
        if effect.quiet is not None:
            self._quiet_since_s = _runs(effect.quiet, self._quiet_since_s, now_s)
        if effect.suspended is not None:
            if self._suspended_since_s is not None and not effect.suspended:
                self.awake_s = now_s
            self._suspended_since_s = _runs(effect.suspended, self._suspended_since_s, now_s)

    def suspect(self, finding: Finding, now_s: float) -> Persistence:
        """What is found now: the same as before, or a new suspicion."""
        self.suspicion = Persistence.after(self.suspicion, finding, now_s)
        return self.suspicion

    def has_recovered(self, now_s: float) -> bool:
        """Has nobody waited for long enough, so that what was reported is over? Then nothing came before a death."""
        if self._quiet_since_s is None or now_s - self._quiet_since_s < RECOVER_S:
            return False
        self.prior = None
        return True

    def suspended_since_s(self, now_s: float, least_s: float) -> float | None:
        """Since when all are suspended, once that has lasted so long."""
        since_s = self._suspended_since_s
        return since_s if since_s is not None and now_s - since_s >= least_s else None

    def is_left(self, incident: Incident, now_s: float, *, have_come: bool) -> bool:
        """Have those of an incident come, for long enough, while others are late?"""
        if not have_come:
            self._others_since_s.pop(incident.id, None)
            return False
        return now_s - self._others_since_s.setdefault(incident.id, now_s) >= RECOVER_S

    @property
    def is_at_ease(self) -> bool:
        """Is nothing suspected, and was the latest snapshot quiet?"""
        is_quiet = self._quiet_since_s is not None and not (self.suspicion or self.prior or self.closely)
        return is_quiet and self._suspended_since_s is None and not self.is_dying

    # ---- deaths ------------------------------------------------------------------------------------------------------

    @property
    def is_dying(self) -> bool:
        """Somebody has died or failed, and the job has not got over it."""
        return self._dying_since_s is not None

    def begin_to_die(self, now_s: float) -> None:
        """Somebody has. A rank that others wait for may be known to have left: rings were read closely meanwhile."""
        seen_s = 0.0
        if self.suspicion is not None and self.suspicion.cause == Cause.PROCESS_EXIT:
            seen_s = min(now_s - self.suspicion.since_s, SETTLE_S - READ_S)
        self._dying_since_s = now_s - seen_s

    def nobody_dies(self) -> None:
        """Nobody has died or failed."""
        self._dying_since_s = None

    def has_settled(self, now_s: float, times: int = 1) -> bool:
        """Have the rings of the others been read since, so often?"""
        return self._dying_since_s is not None and now_s - self._dying_since_s >= times * SETTLE_S

    def get_over(self, last_s: float) -> None:
        """The job goes on after what happened up to a time."""
        self._dying_since_s = self.prior = None
        self.over_s = last_s

    def is_got_over(self, finding: Finding) -> bool:
        """Did this begin before what the job has got over?"""
        return finding.onset_s <= self.over_s + SETTLE_S


def _runs(runs: bool, since_s: float | None, now_s: float) -> float | None:
    if not runs:
        return None
    return now_s if since_s is None else since_s
