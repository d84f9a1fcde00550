"""Acts on what is slow, in a program that lets its shares of the work be changed; or says what could be done.

Nothing is done without being told to: `advise` says what would help, `ask` waits for a yes, and `auto` does it, but for
what a person is to be asked about first. What was done is taken back by itself when it is of no use any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from whichrank.act.lever import Found
from whichrank.act.mitigation import Action, Mitigation, Wanted
from whichrank.act.offers import by_agent
from whichrank.act.planner import Level
from whichrank.model.commands import PlaceOut, ShareOut
from whichrank.model.evidence import QUICK_LINK, QUICK_LINKS
from whichrank.model.incident import Cause, Incident
from whichrank.model.job_now import JobNow, Lately
from whichrank.model.links import LinkRate
from whichrank.model.telemetry import PLACES_REPORTED, SHARES_REPORTED, Batch
from whichrank.server.acted import with_actions
from whichrank.server.checkpointing import Checkpointing
from whichrank.server.mitigations_file import MitigateAsked, Mitigated, MitigationNow, Mode, Planned, of_effect

EVERY_S: Final = 0.25
"""Between two looks at the latest iterations."""
LOOKS: Final = 12
"""In an iteration, of agents, while something is changed: it is to be taken back before many more iterations begin."""
CHANGED_EVERY_S: Final = (0.4, 0.2, 0.1, 0.05, 0.025)
"""Between two of these: a few steps, since agents are told each other one."""
GONE_S: Final = 10.0
"""For so long a plan may be away and be the same one when it comes again."""
ANSWER_S: Final = 15.0
"""A request that could not be met for so long is refused. Agents report what is new every five seconds at least."""
COMPUTES_SLOWLY: Final = frozenset({Cause.COMPUTE_SLOW, Cause.MIXED_SLOW})
ACTED_ON: Final = COMPUTES_SLOWLY | {Cause.COMMUNICATION_SLOW}
NOTHING_OFFERED: Final = (
    "no rank of this job lets its share of the work or its place be changed: see docs/how-to/mitigate.md"
)
MOST_ACTED_ON: Final = 64
"""Incidents of which it is known what was done about them, the latest ones."""


class Watched(Protocol):
    """What must be known of a job to act on it."""

    def lately(self) -> Lately | None:
        """The latest iterations."""

    def job_now(self) -> JobNow:
        """The job as it is now."""

    @property
    def ended_ranks(self) -> list[int]:
        """Whose processes have ended."""

    @property
    def links(self) -> tuple[LinkRate, ...]:
        """Rates of links between nodes."""


class Decided(NamedTuple):
    """What is to be said, and what agents are to be told."""

    lines: tuple[Mitigated, ...] = ()
    orders: Sequence[tuple[str, ShareOut | PlaceOut]] = ()
    """For agents."""
    incidents: tuple[Incident, ...] = ()
    """About which something was done, with that."""


class Mitigations:
    """Of one job.

    Args:
        mode: Whether shares may be changed.
        handed_bytes_per_s: At which states were handed over in an earlier job; 0: it was never seen.
    """

    def __init__(self, mode: Mode, handed_bytes_per_s: float = 0.0) -> None:
        self._mode = mode
        self._mitigation = Mitigation(handed_bytes_per_s=handed_bytes_per_s)
        self._acted_on: dict[str, tuple[Incident, tuple[Mitigated, ...]]] = {}  # by the id of an incident
        self._open: dict[str, Incident] = {}  # that name who computes slowly, or what links are slow
        self._checkpointing = Checkpointing(self._mitigation)
        self._asked: tuple[MitigateAsked, float] | None = None  # and since when
        self._looked_s = -EVERY_S
        self._numbers = 0
        self._planned = 0  # number of what is planned; 0: nothing is
        self._made: dict[Level, Mitigated] = {}  # the action in force, by lever
        self._before: dict[Level, Mitigated] = {}  # the one in force before the latest action
        self._undone: list[Mitigated] = []  # and not said yet
        self._waits = False
        self._said = 0  # number of the plan of which somebody was told last
        self._planned_s = 0.0  # when there was a plan last

    @property
    def is_in_force(self) -> bool:
        """Whether something is changed, or written to disk."""
        return bool(self._mitigation.in_force) or self._checkpointing.is_under_way

    @property
    def _may_be_taken_back(self) -> bool:
        """Whether it matters how soon iterations are seen."""
        return bool(self._mitigation.in_force) and self._mitigation.iteration_s > 0.0

    @property
    def agents_look_every_s(self) -> float:
        """How often agents are to look while something is changed; 0: nothing is."""
        if not self.is_in_force:
            return 0.0
        if not self._may_be_taken_back:
            return CHANGED_EVERY_S[0]
        most_s = self._mitigation.iteration_s / LOOKS
        return next((every_s for every_s in CHANGED_EVERY_S if every_s <= most_s), CHANGED_EVERY_S[-1])

    def note(self, incidents: Iterable[Incident]) -> list[Incident]:
        """Incidents are new or have changed.

        Returns:
            The same, with what was done about them.
        """
        noted = [self._noted(incident) for incident in incidents]
        self._mitigation.named(_found(self._open.values()))
        return noted

    def feed(self, batches: Iterable[Batch]) -> None:
        """Take what agents say of shares and of places."""
        batches = list(batches)
        shares = np.frombuffer(b"".join(batch.shares for batch in batches), SHARES_REPORTED)
        places = np.frombuffer(b"".join(batch.places for batch in batches), PLACES_REPORTED)
        self._mitigation.feed(shares, places)

    def ask(self, asked: MitigateAsked | None, now_s: float) -> None:
        """Somebody wants something; None: nobody does, or not any more."""
        wants_checkpoint = asked is not None and asked.what == "checkpoint"
        self._checkpointing.ask(asked if wants_checkpoint else None, now_s)
        if asked is None or wants_checkpoint:
            self._asked = None
        elif self._asked is None or self._asked[0] != asked:
            self._asked = asked, now_s

    def advance(self, watched: Watched, now_s: float, at: datetime) -> Decided:
        """What is decided now.

        Args:
            watched: The job.
            now_s: Now.
            at: And when that is.
        """
        if now_s - self._looked_s < (self.agents_look_every_s / 2 or EVERY_S):
            return Decided()
        self._looked_s = now_s
        if self._mitigation.has_offers:
            self._mitigation.forget(watched.ended_ranks)
            self._mitigation.note_new_programs()
            self._note_undone(at)
        if self._checkpointing.is_asked:
            line, order = self._checkpointing.advance(watched.job_now().ranks, now_s, at)
            if line is not None or order is not None:
                return Decided((line,) if line else (), _to_agents((order,) if order else (), watched))
            if self._checkpointing.is_under_way and self._asked is not None:
                return Decided()  # it waits until ranks have written
        if not self._mitigation.has_offers:
            return self._refused(NOTHING_OFFERED, at)
        if problem := self._why_not():
            return self._refused(problem, at)
        known = watched.lately()
        wanted = self._wanted(self._asked[0]) if self._asked else None
        action = None
        if known is not None:
            action = self._mitigation.advance(known, now_s, watched.job_now, lambda: watched.links, wanted)
            self._note_undone(at)
        self._number_plan(now_s)
        if action is not None:
            return self._decided(action, watched, now_s, at)
        if self._asked is not None and now_s - self._asked[1] > ANSWER_S:
            return self._refused("nothing is known of the latest iterations", at)
        return Decided()

    def take_news(self, at: datetime) -> Decided:
        """What has become of actions, each thing once: what they have gained, and which are in force no more."""
        lines, self._undone = self._undone, []
        if (effect := self._mitigation.take_effect()) is not None:
            lever, measured = effect
            made = self._made[lever]
            lines.append(msgspec.structs.replace(of_effect(measured, made.step, at), changes=made.changes))
        return Decided(tuple(lines), incidents=tuple(one for line in lines for one in self._add(line)))

    @property
    def handed_bytes_per_s(self) -> float:
        """At which states were handed over by the latest change of places in this job; 0: there was none."""
        return self._mitigation.handed_bytes_per_s

    @property
    def now(self) -> MitigationNow | None:
        """How it is; None while nothing is slow and nothing is changed."""
        mitigation, plan = self._mitigation, self._mitigation.plan
        if mitigation.level is Level.IGNORE and not (plan and self._planned):
            return None
        planned = None
        if plan is not None and self._planned:
            planned = Planned(
                step=self._planned, level=int(plan.level), overhead_s=round(plan.overhead_s, 3),
                predicted_s=round(plan.predicted_s, 4), before=plan.before, after=plan.after, waits=self._waits,
            )  # fmt: skip
        return MitigationNow(
            mode=self._mode, level=int(mitigation.level), steps=tuple(line.step for line in self._made.values()),
            impact_s=round(mitigation.impact_s, 3), healthy_s=round(mitigation.healthy_s, 4),
            now_s=round(mitigation.iteration_s, 4), plan=planned,
        )  # fmt: skip

    def _note_undone(self, at: datetime) -> None:
        """Ranks were replaced, or could not do what they were told."""
        for lever, why in self._mitigation.take_undone():
            latest, before = self._made.pop(lever, None), self._before.pop(lever, None)
            if lever in self._mitigation.in_force and before is not None:
                latest = self._made[lever] = before
            if latest is not None:
                line = Mitigated(at=at, what="undone", step=latest.step, changes=latest.changes, problem=why.value)
                self._undone.append(line)

    def _number_plan(self, now_s: float) -> None:
        """Each plan has a number, by which it can be wanted: the same one as long as something would gain.

        Noise may hide for an iteration or two what is slow: a plan that comes again soon is the same one.
        """
        if self._mitigation.plan is not None:
            self._planned_s = now_s
        elif now_s - self._planned_s > GONE_S:
            self._planned, self._waits = 0, False
        if self._mitigation.plan is not None and not self._planned:
            self._numbers += 1
            self._planned = self._numbers

    def _wanted(self, asked: MitigateAsked) -> Wanted:
        """What is asked, for the planner."""
        levers = [lever for lever, line in self._made.items() if line.step == asked.step]
        return Wanted(levers[0] if asked.what == "revert" and levers else None)

    def _why_not(self) -> str:
        """Why what is wanted cannot be; empty if it can, or nothing is."""
        if self._asked is None:
            return ""
        asked = self._asked[0]
        if asked.what == "revert":
            steps = [line.step for line in self._made.values()]
            if not steps:
                return "nothing is changed that could be taken back"
            return "" if asked.step in steps else f"it is step {' and '.join(map(str, steps))} that is in force"
        if self._planned:
            return "" if asked.step == self._planned else f"it is step {self._planned} that is planned now"
        return "nothing is planned: nothing is slow any more, or nothing would gain anything"

    def _refused(self, problem: str, at: datetime) -> Decided:
        if self._asked is None:
            return Decided()
        asked, self._asked = self._asked[0], None
        line = Mitigated(at=at, what="refused", step=asked.step, request=asked.id, problem=problem)
        return Decided((line,))

    def _decided(self, action: Action, watched: Watched, now_s: float, at: datetime) -> Decided:
        is_back, asked = action.step.level < action.step.before, self._asked
        if asked is None and not is_back and (self._mode != "auto" or action.step.must_be_asked):
            self._waits = self._mode != "advise"
            if self._mode == "advise":
                self._mitigation.refused(action)
            if self._said == self._planned:
                return Decided()
            self._said = self._planned
            return Decided((self._line(action, "asked" if self._waits else "advised", self._planned, at),))
        orders = _to_agents(action.orders, watched)
        self._mitigation.made(action, now_s)
        before = self._made.pop(action.lever, None)
        if before is not None:
            self._before[action.lever] = before
        number = before.step if is_back and before else self._planned
        line = self._line(action, "made", number, at, asked[0].id if asked else "")
        if not is_back:
            self._made[action.lever] = line
        self._planned, self._asked, self._waits = 0, None, False
        for incident in () if is_back else self._open.values():
            _, lines = self._acted_on.pop(incident.id, (incident, ()))
            self._acted_on[incident.id] = incident, (*lines, line)
        for incident_id in list(self._acted_on)[:-MOST_ACTED_ON]:
            del self._acted_on[incident_id]
        return Decided((line,), orders, self._add(line))

    def _noted(self, incident: Incident) -> Incident:
        """An incident with what was done about it, or with what was done that is behind it."""
        self._open.pop(incident.id, None)
        if incident.kind != "slow":
            return incident
        if incident.cause is Cause.IMBALANCE and Level.REBALANCE in self._made:
            return with_actions(incident, (self._made[Level.REBALANCE],))
        if incident.status == "open" and incident.severity == "alert" and incident.cause in ACTED_ON:
            self._open[incident.id] = incident
        if incident.id not in self._acted_on:
            return incident
        _, lines = self._acted_on[incident.id]
        self._acted_on[incident.id] = incident, lines
        return with_actions(incident, lines)

    def _add(self, line: Mitigated) -> tuple[Incident, ...]:
        """The incidents about which it was done, with that."""
        found = []
        for incident_id, (incident, lines) in self._acted_on.items():
            if lines[-1].step == line.step:
                lines = lines if lines[-1] is line else (*lines, line)
                self._acted_on[incident_id] = incident, lines
                found.append(with_actions(incident, lines))
        return tuple(found)

    @staticmethod
    def _line(
        action: Action, what: Literal["made", "advised", "asked"], number: int, at: datetime, request: str = ""
    ) -> Mitigated:
        step = action.step
        return Mitigated(
            at=at, what=what, step=number, level=int(step.level), why=step.why.name.lower(),
            changes="places" if action.lever is Level.TOPOLOGY else "shares",
            before=action.before, after=action.after, impact_s=round(step.impact_s, 3),
            overhead_s=round(step.overhead_s, 3), now_s=round(step.iteration_s, 4),
            predicted_s=round(step.predicted_s, 4), request=request,
        )  # fmt: skip


def _to_agents(
    orders: Iterable[ShareOut | PlaceOut], watched: Watched
) -> list[tuple[str, ShareOut | PlaceOut]]:  # fmt: skip
    return [one for order in orders for one in by_agent(order, watched.job_now().agent_of).items()]


def _found(incidents: Iterable[Incident]) -> Found:
    """What open incidents name."""
    ranks: dict[int, float] = {}
    links: dict[tuple[int, int], float] = {}
    quick_s = [0.0]
    for incident in incidents:
        if incident.cause in COMPUTES_SLOWLY:
            ranks |= {one.rank: one.confidence for one in incident.culprits}
        links |= {(one.src, one.dst): 1.0 for one in incident.links}
        quick_s += [float(one.value) for one in incident.evidence if one.what in (QUICK_LINK, QUICK_LINKS)]
    return Found(ranks, links, max(quick_s))
