"""Which action against something slow is worth what it costs, and when.

Nobody knows how long it will stay slow: ten seconds or hours. So it is as with skis that are rented until the rent is
as much as they cost. Levels are tried from the cheapest on: nothing (M1), other shares of the work (M2), other places
for ranks (M3), a restart without the slow part (M4). What the slowness has cost so far, over the time that iterations
took before, is its impact; when that reaches what the next level costs once, that level is due. When all is as before
the level is taken back and the impact is forgotten.

How bad can it be? While level i is the last one that was due, the impact is I, at least what i costs, and whoever knew
the end could not have paid less than I: with any level j up to i the time since j was due alone costs I less what j
costs, and any later level costs more. So all that was paid is at most I and what levels 2 to i cost: where each level
costs q times the one before, at most 1 + q / (q - 1) times the least. Taking back may cost as much as doing.

Two rules more keep a wrong finding from costing more than one level. A level that is not said to gain enough is left
out. One that was made and gains much less than it was said to is taken back, and for an hour it is not made again by
itself while nothing else is slow: these findings are not what is slow.

Example: iterations take 1.5 s for 1.0 s; other shares cost 0.2 s, a restart 1,200 s. Shares are due after one
iteration, and bring iterations to 1.1 s. If they stay so, a restart is due after 12,000 iterations more: 3.7 hours.

Source: Greyhound, section 5.1 and algorithm 1.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

HELPS: Final = 0.5
"""Share of what was said to be gained that must be measured for a level to stay."""
LEAST_GAIN: Final = 0.02
"""Share of an iteration that a level must be said to gain: less is noise, and could not be measured."""
SETTLED: Final = 2
"""Iterations after an action that are not measured: in them it takes effect."""
MEASURED: Final = 5
"""Iterations that say what an action gains."""
AGAIN: Final = 0.1
"""Share of an iteration that the same level done anew must be said to gain: a tenth is a change (Greyhound, 4.2)."""
HOUR_S: Final = 3600.0


class Level(IntEnum):
    """What is done about it; Greyhound calls them S1 to S4."""

    IGNORE = 1
    REBALANCE = 2
    TOPOLOGY = 3
    RESTART = 4


class Why(Enum):
    """Why a step is to be made."""

    IMPACT = "the slowness has cost as much as this does"
    OTHERS = "other ranks or links are slow than before"
    RELIEF = "all is as quick as before"
    NO_GAIN = "it gains much less than it was said to"
    BY_HAND = "somebody wanted it"


@dataclass(frozen=True)
class Option:
    """A level that can be taken now.

    Attributes:
        level: Which.
        overhead_s: Seconds of training that it costs, once.
        iteration_s: What an iteration would take with it, predicted.
        undo_s: Seconds that taking it back costs.
    """

    level: Level
    overhead_s: float
    iteration_s: float
    undo_s: float = 0.0


@dataclass(frozen=True)
class Step:
    """Something to be done now.

    Attributes:
        level: In which the job is to be from then on.
        before: In which it is.
        why: The reason.
        impact_s: What the slowness has cost so far.
        overhead_s: What the step costs.
        iteration_s: What an iteration takes now.
        predicted_s: And would take then.
        must_be_asked: It is not to be made without a yes: the findings are not sure, or enough was done in this hour.
    """

    level: Level
    before: Level
    why: Why
    impact_s: float
    overhead_s: float
    iteration_s: float
    predicted_s: float
    must_be_asked: bool = False


@dataclass(frozen=True)
class Caps:
    """How much is done without asking.

    Attributes:
        confidence: Of findings, below which a person is asked.
        steps_an_hour: Of each level; taking back is never held up.
    """

    confidence: float = 0.7
    steps_an_hour: int = 6


@dataclass(frozen=True)
class Effect:
    """What a step has gained.

    Attributes:
        level: In which the job is since then.
        before_s: What an iteration took before it.
        predicted_s: And was to take.
        measured_s: And takes.
    """

    level: Level
    before_s: float
    predicted_s: float
    measured_s: float


class Planner:
    """Of one job.

    Args:
        caps: How much is done without asking.

    Attributes:
        level: In which the job is.
        impact_s: What the present slowness has cost so far, seconds.
        upcoming: What would be done next, as of the latest call of `advance`; None if nothing would gain anything.
    """

    def __init__(self, caps: Caps | None = None) -> None:
        self._caps = caps or Caps()
        self.level, self.impact_s = Level.IGNORE, 0.0
        self.upcoming: Option | None = None
        self._slow: frozenset[str] = frozenset()
        self._confidence = 1.0
        self._waiting: Step | None = None  # for an answer
        self._made: deque[tuple[float, Level]] = deque()
        self._refused: set[Level] = set()
        self._useless: dict[
            Level, tuple[frozenset[str], float]
        ] = {}  # what was slow when it gained too little, and when
        self._measures: _Measures | None = None
        self._undo_s = 0.0
        self._is_given_up = self._has_changed = False
        self._stays = False  # it could not be taken back
        self._before = Level.IGNORE  # the latest step

    def findings(self, slow: frozenset[str], confidence: float = 1.0) -> None:
        """What is slow now, by names of ranks and links, and how sure the least sure of it is. Nothing: all is well.

        What is new is a reason to try again what was refused, or did not help.
        """
        if slow - self._slow:
            self._refused.clear()
            self._is_given_up = False
        if not slow:
            self._refused.clear()
            self._is_given_up, self.impact_s = False, 0.0
        if slow - self._slow:
            self._measures = None
        self._has_changed = bool(slow) and (self._has_changed or slow != self._slow)
        self._slow, self._confidence = slow, confidence

    def advance(
        self, now_s: float, iterations: Sequence[float], healthy_s: float, options: Sequence[Option],
        *, by_hand: bool = False,
    ) -> Step | None:  # fmt: skip
        """What is to be done now; the same step is not said twice until it is answered.

        Args:
            now_s: Any clock.
            iterations: Seconds of each iteration since the last call.
            healthy_s: What one takes while all is well.
            options: What could be done now.
            by_hand: Somebody wants what would be done next, whether it is due or not, and whatever was said of it.
        """
        if self._slow:
            self.impact_s += sum(max(one - healthy_s, 0.0) for one in iterations)
        for one in iterations:
            if self._measures is not None:
                self._measures.take(one)
        latest_s = statistics.median(iterations) if iterations else 0.0
        self.upcoming = self._upcoming(latest_s, options)
        if by_hand and self.upcoming is not None:
            self._waiting = self._step(self.upcoming, Why.BY_HAND, latest_s, now_s)
            return self._waiting
        if self._waiting is not None and self._is_still_wanted(self._waiting):
            return None
        self._waiting = self._next(now_s, latest_s, options)
        return self._waiting

    def taken_back(self, latest_s: float) -> Step | None:
        """All as it was, since somebody wants that; None if nothing was changed.

        Args:
            latest_s: What an iteration takes now.
        """
        if self.level is Level.IGNORE:
            return None
        return Step(Level.IGNORE, self.level, Why.BY_HAND, self.impact_s, self._undo_s, latest_s, latest_s)

    def made(self, step: Step, now_s: float) -> None:
        """A step was made."""
        self._waiting, self._has_changed = None, False
        self._before, self.level, self._stays = step.before, step.level, False
        if step.why is Why.NO_GAIN:
            self._useless[step.before] = self._slow, now_s
        if step.level < step.before:
            self._is_given_up, self._measures = step.why is not Why.RELIEF, None
        else:
            self._is_given_up = False
            self._refused.discard(step.level)
            self._made.append((now_s, step.level))
            self._measures = _Measures(step.iteration_s, step.predicted_s)

    def refused(self, step: Step) -> None:
        """Somebody said no, or it failed and all is as it was: it is not asked again while nothing else is slow."""
        self._waiting, self._has_changed = None, False
        self._refused.add(step.level)

    def failed(self) -> None:
        """The latest step could not be made, and all is as it was before it.

        What could not be taken back stays until somebody wants it back: each attempt costs as much as a step.
        """
        self._stays = self.level < self._before
        self._refused.add(self.level)
        self.level, self._measures = self._before, None

    def put_off(self) -> None:
        """The step that was said is not made now: something else is."""
        self._waiting = None

    def disturbed(self) -> None:
        """Something else was changed, so that what iterations take says nothing of this step."""
        if self._measures is not None and not self._measures.is_done:
            self._measures = None

    def take_effect(self) -> Effect | None:
        """What the latest step has gained, once, when that is known."""
        if self._measures is None or not self._measures.is_done or self._measures.is_taken:
            return None
        self._measures.is_taken = True
        return Effect(self.level, self._measures.before_s, self._measures.predicted_s, self._measures.measured_s)

    def _is_still_wanted(self, step: Step) -> bool:
        return bool(self._slow) == (step.why is not Why.RELIEF)

    def _next(self, now_s: float, latest_s: float, options: Sequence[Option]) -> Step | None:
        by_level = {one.level: one for one in options}
        undo_s = by_level[self.level].undo_s if self.level in by_level else self._undo_s
        self._undo_s = undo_s
        if not self._slow:
            if self.level is Level.RESTART:
                self.level = Level.IGNORE  # there is nothing to take back: the job runs without the slow part
            if self.level is Level.IGNORE or self._stays:
                return None
            return Step(Level.IGNORE, self.level, Why.RELIEF, 0.0, undo_s, latest_s, latest_s)
        is_measuring = self._measures is not None and not self._measures.is_done
        if self._is_given_up or is_measuring or not latest_s:
            return None
        if self._measures is not None and self._measures.says_no_gain and self.level is not Level.RESTART:
            self._is_given_up = True
            if self._before == self.level:  # it had helped until others became slow
                return None
            before_s = self._measures.before_s
            return Step(self._before, self.level, Why.NO_GAIN, self.impact_s, undo_s, latest_s, before_s)
        due = self._upcoming(latest_s, [one for one in options if self._may_help(one.level, now_s)])
        if due is None:
            return None
        if due.level == self.level:
            return self._step(due, Why.OTHERS, latest_s, now_s)
        return self._step(due, Why.IMPACT, latest_s, now_s) if self.impact_s >= due.overhead_s else None

    def _may_help(self, level: Level, now_s: float) -> bool:
        """Whether it was not refused, and has not gained too little in this hour while nothing else was slow."""
        slow, at_s = self._useless.get(level, (frozenset(), now_s))
        return level not in self._refused and not (self._slow <= slow and now_s - at_s < HOUR_S)

    def _upcoming(self, latest_s: float, options: Sequence[Option]) -> Option | None:
        """The same level for what is slow now, or else the cheapest further one that gains something."""
        if not self._slow or not latest_s:
            return None
        least_s = LEAST_GAIN if self._has_changed else AGAIN
        again = [one for one in options if one.level == self.level and one.level is Level.REBALANCE]
        if again and _gained(again[0], latest_s) >= least_s:
            return again[0]
        further = [one for one in options if one.level > self.level and _gained(one, latest_s) >= LEAST_GAIN]
        return min(further, key=lambda one: one.overhead_s, default=None)

    def _step(self, option: Option, why: Why, latest_s: float, now_s: float) -> Step:
        while self._made and now_s - self._made[0][0] > HOUR_S:
            self._made.popleft()
        often = sum(level == option.level for _, level in self._made) >= self._caps.steps_an_hour
        return Step(
            option.level, self.level, why, self.impact_s, option.overhead_s, latest_s, option.iteration_s,
            must_be_asked=often or self._confidence < self._caps.confidence,
        )  # fmt: skip


def _gained(option: Option, latest_s: float) -> float:
    """Share of an iteration that an option is said to gain."""
    return (latest_s - option.iteration_s) / latest_s


class _Measures:
    """What a step gains.

    Args:
        before_s: What an iteration took before it.
        predicted_s: And was to take then.
    """

    def __init__(self, before_s: float, predicted_s: float) -> None:
        self.before_s, self.predicted_s = before_s, predicted_s
        self.is_taken = False
        self._to_settle, self._seen = SETTLED, list[float]()

    def take(self, iteration_s: float) -> None:
        if self._to_settle:
            self._to_settle -= 1
        elif len(self._seen) < MEASURED:
            self._seen.append(iteration_s)

    @property
    def is_done(self) -> bool:
        return len(self._seen) == MEASURED

    @property
    def measured_s(self) -> float:
        return statistics.median(self._seen)

    @property
    def says_no_gain(self) -> bool:
        return self.is_done and self.before_s - self.measured_s < HELPS * (self.before_s - self.predicted_s)
