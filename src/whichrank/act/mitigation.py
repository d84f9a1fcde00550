"""Acts on what is slow in a job whose program lets something be changed, and takes it back when all is well again.

What can be changed is a lever: shares of the work (`sharing`), places of ranks (`placing`). A lever says what is slow
and what it would gain; when to act at all says the planner.

Only iterations of what is in use count. Ranks agree among themselves from which iteration on that is, so what they did
until all said so may be of either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from whichrank.act.lever import JUDGED, Found, Look, Seen
from whichrank.act.placing import Placing
from whichrank.act.planner import Caps, Effect, Level, Planner, Step
from whichrank.act.sharing import Sharing
from whichrank.model.commands import PlaceOut, ShareOut
from whichrank.model.job_now import JobNow, Lately
from whichrank.model.links import LinkRate

MEASURED: Final = 8
"""Latest iterations that say what usually takes how long."""


class Wanted(Enum):
    """What a user may want."""

    NEXT = "what would be done next"
    BACK = "all as it was"


@dataclass(frozen=True)
class Action:
    """Something that is to be done, or that somebody may want to do.

    Attributes:
        step: Why, and what it costs and gains.
        orders: To all ranks.
        before: Microbatches of each replica until then, or the rank in each place.
        after: And from then on.
    """

    step: Step
    orders: tuple[ShareOut | PlaceOut, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def changes(self) -> Level:
        """What `before` and `after` are of: shares (REBALANCE) or places (TOPOLOGY)."""
        are_places = any(isinstance(order, PlaceOut) for order in self.orders)
        return Level.TOPOLOGY if are_places else Level.REBALANCE


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

    Attributes:
        plan: What would be done next; None while nothing would gain anything.
        healthy_s: What an iteration takes while all is well; 0: not known.
        iteration_s: What one takes now.
    """

    def __init__(self, caps: Caps | None = None) -> None:
        self.plan: Plan | None = None
        self.healthy_s = self.iteration_s = 0.0
        self._caps, self._planner = caps, Planner(caps)
        self._sharing, self._placing = Sharing(), Placing()
        self._found = Found()
        self._versions: tuple[int, ...] = ()
        self._since, self._fed = -1, -1

    @property
    def level(self) -> Level:
        """In which the job is."""
        return self._planner.level

    @property
    def impact_s(self) -> float:
        """What the present slowness has cost so far."""
        return self._planner.impact_s

    @property
    def has_offers(self) -> bool:
        """Whether any rank lets something be changed."""
        return self._sharing.offers.are_any or self._placing.offers.are_any

    def feed(self, shares: np.ndarray[Any, Any] | None, places: np.ndarray[Any, Any] | None = None) -> None:
        """Take rows of SHARES_REPORTED, and of PLACES_REPORTED."""
        if shares is not None:
            self._sharing.offers.feed(shares)
        if places is not None:
            self._placing.offers.feed(places)

    def forget(self, ranks: Collection[int]) -> None:
        """These processes were replaced or are gone: those that come in their places have been told nothing."""
        gone = [lever.offers.forget(ranks) for lever in (self._sharing, self._placing)]
        if any(gone):
            self._planner, self._versions = Planner(self._caps), ()
            self.plan, self.healthy_s, self.iteration_s = None, 0.0, 0.0
            for lever in (self._sharing, self._placing):
                lever.forget()

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
        ranks = lately.ranks.tolist()
        offered = [lever for lever in (self._sharing, self._placing) if lever.offers.are_any]
        versions = tuple(lever.version(ranks) for lever in offered)
        if not versions or -1 in versions or not len(lately.number):
            return None  # not all ranks use the same yet
        if versions != self._versions:
            self._versions, self._since = versions, int(lately.number[-1])
            if self.level is Level.TOPOLOGY and self._placing.has_failed():
                self._planner.failed()
        new = lately.total_s[:, lately.number > max(self._fed, self._since)]
        self._fed = int(lately.number[-1])
        counted = lately.own_s[:, lately.number > self._since][:, -MEASURED:]
        if counted.shape[1] < JUDGED or not new.shape[1]:
            return None
        iterations_s = np.median(new, axis=0)
        self.iteration_s = float(np.median(iterations_s))
        seen = Seen(
            lately.ranks, counted, self.iteration_s, self.level, self._found, int(lately.number[-1]), job, links
        )
        return self._planned(offered, seen, iterations_s.tolist(), now_s, wanted)

    def made(self, action: Action, now_s: float) -> None:
        """All ranks were told."""
        self.plan = None
        for order in action.orders:
            (self._sharing if isinstance(order, ShareOut) else self._placing).made()
        self._planner.made(action.step, now_s)

    def refused(self, action: Action) -> None:
        """Somebody said no."""
        self._planner.refused(action.step)

    def take_effect(self) -> Effect | None:
        """What the latest action has gained, once, when that is known."""
        return self._planner.take_effect()

    def _planned(
        self, offered: list[Sharing | Placing], seen: Seen, iterations_s: list[float], now_s: float,
        wanted: Wanted | None,
    ) -> Action | None:  # fmt: skip
        looks = {lever.level: lever.look(seen) for lever in offered}
        slow = frozenset[str]().union(*(look.slow for look in looks.values()))
        self._planner.findings(slow, seen.found.confidence)
        telling = [look for look in looks.values() if look.slow] or list(looks.values())
        self.healthy_s = max(look.healthy_s for look in telling) or self.iteration_s
        options = [look.option for look in looks.values() if look.option is not None]
        step = self._planner.advance(now_s, iterations_s, self.healthy_s, options, by_hand=wanted is Wanted.NEXT)
        if wanted is Wanted.BACK:
            step = self._planner.taken_back(self.iteration_s)
        self.plan = None
        if (upcoming := self._planner.upcoming) is not None:
            look = looks[upcoming.level]
            self.plan = Plan(
                upcoming.level, upcoming.overhead_s, self.iteration_s, upcoming.iteration_s, look.before, look.after
            )
        return self._action(step, looks) if step is not None else None

    def _action(self, step: Step, looks: dict[Level, Look]) -> Action:
        levers = {lever.level: lever for lever in (self._sharing, self._placing)}
        if step.level >= step.before and step.level in looks:
            look = looks[step.level]
            return Action(step, (levers[step.level].order(look.after),), look.before, look.after)
        back = [levers[level] for level in looks if level > step.level and levers[level].is_changed()]
        main = back[-1] if back else levers[next(iter(looks))]
        orders = tuple(lever.order(lever.even()) for lever in back)
        return Action(step, orders, looks[main.level].before, main.even())
