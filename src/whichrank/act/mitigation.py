"""Acts on what is slow in a job whose program lets something be changed, and takes it back when all is well again.

What can be changed is a lever: shares of the work (`sharing`), places of ranks (`placing`). A lever says what is slow
and what it would gain; when to act at all says its planner. Each lever has one of its own: a link that stays slow for
hours must not keep a rank that becomes slow from fewer microbatches.

Only iterations of what is in use count. Ranks agree among themselves from which iteration on that is, so what they did
until all said so may be of either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from whichrank.act.lever import JUDGED, Found, Look, Seen
from whichrank.act.placing import Placing, Saved
from whichrank.act.planner import Caps, Effect, Level, Planner, Step
from whichrank.act.sharing import Sharing
from whichrank.model.commands import PlaceOut, ShareOut
from whichrank.model.job_now import JobNow, Lately
from whichrank.model.links import LinkRate

MEASURED: Final = 8
"""Latest iterations that say what usually takes how long."""


class Undone(Enum):
    """What has become of an action, and not because anybody wanted that."""

    REPLACED = "in force no more, since processes of ranks have ended"
    ANEW = "in force no more, since the program has begun anew"
    FAILED = "given up, since not all ranks could take their new places: all are where they were"


@dataclass(frozen=True)
class Wanted:
    """What a user wants.

    Attributes:
        lever: Whose changes are to be taken back; None: what is planned is to be done.
    """

    lever: Level | None = None


@dataclass(frozen=True)
class Action:
    """Something that is to be done, or that somebody may want to do.

    Attributes:
        step: Why, and what it costs and gains.
        lever: REBALANCE: shares are changed; TOPOLOGY: places are.
        orders: To all ranks; none if all is as it is to be already.
        before: Microbatches of each replica until then, or the rank in each place.
        after: And from then on.
    """

    step: Step
    lever: Level
    orders: tuple[ShareOut | PlaceOut, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What would be done next.

    Attributes:
        level: In which the job would be then.
        overhead_s: What that costs, once; due when the slowness has cost as much.
        iteration_s: What an iteration takes now.
        predicted_s: And would take then.
        before: Microbatches of each replica now, or the rank in each place.
        after: And then.
    """

    level: Level
    overhead_s: float
    iteration_s: float
    predicted_s: float
    before: tuple[int, ...]
    after: tuple[int, ...]


class Mitigation:
    """Of one job.

    Args:
        caps: How much is done without asking.
        handed_bytes_per_s: At which states were handed over in an earlier job; 0: it was never seen.

    Attributes:
        plan: What would be done next; None while nothing would gain anything.
        healthy_s: What an iteration takes while all is well; 0: not known.
        iteration_s: What one takes now.
    """

    def __init__(self, caps: Caps | None = None, handed_bytes_per_s: float = 0.0) -> None:
        self.plan: Plan | None = None
        self.healthy_s = self.iteration_s = 0.0
        self._caps = caps
        self._sharing, self._placing = Sharing(), Placing(handed_bytes_per_s)
        self._planners = {lever.level: Planner(caps) for lever in self._levers}
        self._found = Found()
        self._versions: tuple[int, ...] = ()
        self._since, self._fed = -1, -1
        self._undone: list[tuple[Level, Undone]] = []

    @property
    def level(self) -> Level:
        """In which the job is: the highest of those that are in force."""
        return max(planner.level for planner in self._planners.values())

    @property
    def in_force(self) -> frozenset[Level]:
        """The levers by which something is changed."""
        return frozenset(level for level, planner in self._planners.items() if planner.level is not Level.IGNORE)

    @property
    def impact_s(self) -> float:
        """What the present slowness has cost so far."""
        return max(planner.impact_s for planner in self._planners.values())

    @property
    def has_offers(self) -> bool:
        """Whether any rank lets something be changed."""
        return any(lever.offers.are_any for lever in self._levers)

    def feed(self, shares: np.ndarray[Any, Any] | None, places: np.ndarray[Any, Any] | None = None) -> None:
        """Take rows of SHARES_REPORTED, and of PLACES_REPORTED."""
        if shares is not None:
            self._sharing.offers.feed(shares)
        if places is not None:
            self._placing.offers.feed(places)

    def forget(self, ranks: Collection[int]) -> None:
        """These processes were replaced or are gone: those that come in their places have been told nothing."""
        gone = [lever.offers.forget(ranks) for lever in self._levers]
        if any(gone):
            self.plan, self.healthy_s, self.iteration_s, self._versions = None, 0.0, 0.0, ()
            for lever in self._levers:
                self._begin_anew(lever, Undone.REPLACED)

    def note_new_programs(self) -> None:
        """Programs have offered anew: they have been told nothing."""
        for lever in self._levers:
            if lever.offers.began_anew:
                lever.offers.began_anew = False
                self._begin_anew(lever, Undone.ANEW)

    def save(self, ranks: Sequence[int]) -> PlaceOut | None:
        """The order that has all states written to disk; None if the program cannot, or does something else now.

        Args:
            ranks: Of the job.
        """
        self._placing.version(ranks)
        self._note_failed()  # what comes next hides it
        return self._placing.save(ranks)

    def saved(self, ranks: Sequence[int]) -> Saved:
        """What has become of that order."""
        return self._placing.saved(ranks)

    @property
    def handed_bytes_per_s(self) -> float:
        """At which states were handed over by the latest change of places in this job; 0: there was none."""
        return self._placing.handed_bytes_per_s

    @property
    def saves(self) -> bool:
        """Whether any rank can write its state to disk."""
        return self._placing.offers.any_saves

    def named(self, found: Found) -> None:
        """What open incidents name."""
        self._found = found

    def advance(
        self, lately: Lately, now_s: float, job: Callable[[], JobNow], links: Callable[[], tuple[LinkRate, ...]],
        wanted: Wanted | None = None,
    ) -> Action | None:  # fmt: skip
        """What is to be done now; the same is not said twice until it is answered.

        Args:
            lately: The latest iterations.
            now_s: Any clock.
            job: The job as it is now.
            links: Rates of links between nodes.
            wanted: By a user.
        """
        self.note_new_programs()
        ranks = lately.ranks.tolist()
        offered = [lever for lever in self._levers if lever.offers.are_any]
        versions = tuple(lever.version(ranks) for lever in offered)
        if not versions or -1 in versions or not len(lately.number):
            return None  # not all ranks use the same yet
        if versions != self._versions:
            self._versions, self._since = versions, int(lately.number[-1]) + self._placing.has_saved
            self._note_failed()
        new = lately.total_s[:, lately.number > max(self._fed, self._since)]
        self._fed = int(lately.number[-1])
        counted = lately.own_s[:, lately.number > self._since][:, -MEASURED:]
        if counted.shape[1] < JUDGED or not new.shape[1]:
            return None
        iterations_s = np.median(new, axis=0).tolist()
        self.iteration_s = float(np.median(iterations_s))
        planned = self.plan.level if self.plan else None
        self.plan, self.healthy_s, found = None, 0.0, None
        for lever in offered:
            planner = self._planners[lever.level]
            look = lever.look(
                Seen(
                    lately.ranks, counted, self.iteration_s, planner.level, self._found, int(lately.number[-1]), job,
                    links,
                )
            )  # fmt: skip
            is_next = wanted is not None and wanted.lever is None and planned is lever.level
            is_back = wanted is not None and wanted.lever is lever.level
            step = self._step(planner, look, iterations_s, now_s, by_hand=is_next)
            if is_back:
                step = planner.taken_back(self.iteration_s)
            self._note_plan(planner, look)
            if found is None and step is not None:
                found = self._action(lever, step, look)
            elif step is not None:
                planner.put_off()
        self.healthy_s = self.healthy_s or self.iteration_s
        return found

    def made(self, action: Action, now_s: float) -> None:
        """All ranks were told."""
        self.plan = None
        for level, planner in self._planners.items():
            if level is action.lever:
                planner.made(action.step, now_s)
            else:
                planner.disturbed()
        if action.orders:
            next(lever for lever in self._levers if lever.level is action.lever).made()

    def refused(self, action: Action) -> None:
        """Somebody said no."""
        self._planners[action.lever].refused(action.step)

    def take_effect(self) -> tuple[Level, Effect] | None:
        """What the latest action with a lever has gained, once, when that is known."""
        for level, planner in self._planners.items():
            if (effect := planner.take_effect()) is not None:
                return level, effect
        return None

    def take_undone(self) -> list[tuple[Level, Undone]]:
        """Levers by which something was changed, and is not or not any more; each is said once."""
        undone, self._undone = self._undone, []
        return undone

    @property
    def _levers(self) -> tuple[Sharing | Placing, ...]:
        return self._sharing, self._placing

    def _begin_anew(self, lever: Sharing | Placing, why: Undone) -> None:
        """Nothing is changed any more by a lever."""
        lever.forget()
        self._undo(lever.level, why)
        self._planners[lever.level] = Planner(self._caps)

    def _note_failed(self) -> None:
        """Ranks use something else: perhaps what they had before, since not all could do what they were told."""
        if self._placing.take_failed():
            self._planners[self._placing.level].failed()
            self._undo(self._placing.level, Undone.FAILED)

    def _undo(self, level: Level, why: Undone) -> None:
        if why is Undone.FAILED or self._planners[level].level is not Level.IGNORE:
            self._undone.append((level, why))

    def _step(
        self, planner: Planner, look: Look, iterations_s: list[float], now_s: float, *, by_hand: bool
    ) -> Step | None:
        planner.findings(look.slow, self._found.confidence)
        options = [look.option] if look.option is not None else []
        return planner.advance(now_s, iterations_s, look.healthy_s or self.iteration_s, options, by_hand=by_hand)

    def _note_plan(self, planner: Planner, look: Look) -> None:
        """The cheapest of what would be done next."""
        if look.slow:
            self.healthy_s = max(self.healthy_s, look.healthy_s)
        option = planner.upcoming
        if option is not None and (self.plan is None or option.overhead_s < self.plan.overhead_s):
            self.plan = Plan(
                option.level, option.overhead_s, self.iteration_s, option.iteration_s, look.before, look.after
            )

    @staticmethod
    def _action(lever: Sharing | Placing, step: Step, look: Look) -> Action:
        if step.level >= step.before:
            return Action(step, lever.level, (lever.order(look.after),), look.before, look.after)
        orders = (lever.order(lever.even()),) if lever.is_changed() else ()
        return Action(step, lever.level, orders, look.before, lever.even())
