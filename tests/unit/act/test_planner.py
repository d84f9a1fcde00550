"""What is done about something slow, and when: jobs of which every iteration takes what its level says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from whichrank.act.planner import Caps, Level, Option, Planner, Step, Why

SLOW = frozenset({"rank 3"})
OPTIONS = (
    Option(Level.REBALANCE, overhead_s=2.0, iteration_s=1.2),
    Option(Level.TOPOLOGY, overhead_s=60.0, iteration_s=1.1, undo_s=60.0),
    Option(Level.RESTART, overhead_s=1200.0, iteration_s=1.0),
)


@dataclass
class Job:
    """A job that does as the planner says.

    Attributes:
        takes: Seconds of an iteration in each level, while something is slow.
        paid_s: What was lost until now: by slowness, by steps, by taking them back.
    """

    takes: dict[Level, float]
    options: Sequence[Option] = OPTIONS
    planner: Planner = field(default_factory=Planner)
    healthy_s: float = 1.0
    now_s: float = 0.0
    paid_s: float = 0.0
    steps: list[Step] = field(default_factory=list)
    answer: Callable[[Step], bool] = lambda _: True

    def run(self, iterations: int, slow: frozenset[str] = SLOW, confidence: float = 1.0) -> Job:
        """So many iterations, in which this is slow."""
        self.planner.findings(slow, confidence)
        for _ in range(iterations):
            took_s = self.takes[self.planner.level] if slow else self.healthy_s
            self.now_s += took_s
            self.paid_s += took_s - self.healthy_s
            if step := self.planner.advance(self.now_s, [took_s], self.healthy_s, self.options):
                self.steps.append(step)
                if not self.answer(step):
                    self.planner.refused(step)
                    continue
                self.now_s += step.overhead_s
                self.paid_s += step.overhead_s
                self.planner.made(step, self.now_s)
        return self

    def said(self) -> list[tuple[Level, Why]]:
        return [(step.level, step.why) for step in self.steps]


def as_predicted(slow_s: float = 1.5) -> dict[Level, float]:
    return {Level.IGNORE: slow_s} | {one.level: one.iteration_s for one in OPTIONS}


def test_each_level_is_due_when_the_slowness_has_cost_as_much() -> None:
    job = Job(as_predicted()).run(20_000)
    assert job.said() == [(one.level, Why.IMPACT) for one in OPTIONS]
    for step, option in zip(job.steps, OPTIONS, strict=True):
        assert option.overhead_s <= step.impact_s < option.overhead_s + 0.51
        assert step.overhead_s == option.overhead_s
        assert step.predicted_s == option.iteration_s
    # AND nothing more is done when it is all well again, behind a restart
    assert len(job.run(10, frozenset()).steps) == len(OPTIONS)


def test_what_was_done_is_taken_back_at_once_when_all_is_well() -> None:
    job = Job(as_predicted()).run(100)
    assert job.said() == [(Level.REBALANCE, Why.IMPACT)]
    job.run(1, frozenset())
    assert job.said()[1:] == [(Level.IGNORE, Why.RELIEF)]
    # AND the next slowness begins from nothing
    assert job.planner.impact_s == 0
    job.run(3)
    assert len(job.steps) == 2


def test_short_slowness_is_left_alone() -> None:
    job = Job(as_predicted())
    for _ in range(100):
        job.run(3).run(50, frozenset())
    assert job.steps == []


def test_level_that_is_not_said_to_gain_is_left_out() -> None:
    # GIVEN groups that are all slow: other shares change nothing
    options = (Option(Level.REBALANCE, 2.0, 1.5), *OPTIONS[1:])
    assert Job(as_predicted(), options).run(1000).said()[0] == (Level.TOPOLOGY, Why.IMPACT)


def test_level_that_gains_nothing_is_taken_back_and_nothing_more_is_done() -> None:
    # GIVEN a finding that is wrong: whatever is done, it stays slow
    job = Job(dict.fromkeys(Level, 1.5)).run(5000)
    assert job.said() == [(Level.REBALANCE, Why.IMPACT), (Level.IGNORE, Why.NO_GAIN)]
    # WHEN something else is found THEN it is tried again
    job.run(5, frozenset({"rank 5"}))
    assert job.said()[2:] == [(Level.REBALANCE, Why.IMPACT)]


@pytest.mark.parametrize("seed", range(50))
def test_wrong_finding_costs_no_more_than_one_level(seed: int) -> None:
    # GIVEN levels that gain nothing, or make it worse, or a finding that comes and goes
    rng = np.random.default_rng(seed)
    slow_s = 1.0 + rng.uniform(0.1, 2.0)
    overheads = np.sort(10 ** rng.uniform(-1, 3, 3))
    levels = list(Level)[1:]
    options = [
        Option(level, float(cost), 1.0 + 0.3 * (slow_s - 1.0) * rng.random(), float(cost) * rng.integers(2))
        for level, cost in zip(levels, overheads, strict=True)
    ]
    worse = {level: slow_s * (1 + rng.choice([0.0, 0.2])) for level in levels}
    job = Job({Level.IGNORE: slow_s, **worse}, options).run(5000)
    ignored_s = 5000 * (slow_s - 1.0)
    # THEN it costs what one level does, and what it did until that was measured
    made = [step for step in job.steps if step.why is Why.IMPACT]
    assert len(made) <= 1
    undo_s = max(one.undo_s for one in options)
    assert job.paid_s <= ignored_s + sum(step.overhead_s for step in made) + undo_s + 8 * max(worse.values())


@pytest.mark.parametrize("seed", range(50))
def test_it_never_costs_much_more_than_if_the_end_had_been_known(seed: int) -> None:
    # GIVEN levels, each of which costs four times the one before or more
    rng = np.random.default_rng(seed)
    ratio = rng.uniform(4, 20)
    costs = 2.0 * ratio ** np.arange(3)
    rates = np.sort(rng.uniform(0.0, 0.8, 4))[::-1]
    takes = {level: 1.0 + float(rate) for level, rate in zip(Level, rates, strict=True)}
    options = [Option(level, float(cost), takes[level]) for level, cost in zip(list(Level)[1:], costs, strict=True)]
    for iterations in np.unique(np.round(10 ** np.linspace(0, 4, 12)).astype(int)).tolist():
        job = Job(takes, options).run(iterations)
        known_s = min(
            [iterations * rates[0], *(cost + iterations * rate for cost, rate in zip(costs, rates[1:], strict=True))]
        )
        # THEN it is within the bound of the docs; an iteration is slow before anything can be done
        assert job.paid_s <= (1 + ratio / (ratio - 1)) * known_s + 5 * rates[0]


def test_other_ranks_that_are_slow_get_other_shares_at_once() -> None:
    job = Job(as_predicted()).run(50)
    job.takes = dict.fromkeys(Level, 1.5)
    job.run(5, SLOW | {"rank 5"})
    assert job.said()[1:] == [(Level.REBALANCE, Why.OTHERS)]


def test_person_is_asked_where_the_finding_is_not_sure_and_once() -> None:
    job = Job(as_predicted(), answer=lambda step: not step.must_be_asked).run(1000, confidence=0.5)
    asked = [step for step in job.steps if step.must_be_asked]
    assert [step.level for step in asked] == [one.level for one in OPTIONS[:2]]


def test_step_is_said_once_until_it_is_answered() -> None:
    planner = Planner()
    planner.findings(SLOW)
    steps = [planner.advance(at, [1.5], 1.0, OPTIONS) for at in range(20)]
    (step,) = [one for one in steps if one]
    assert step.level is Level.REBALANCE
    # WHEN it is all well meanwhile THEN it is not wanted any more
    planner.findings(frozenset())
    assert planner.advance(30, [1.0], 1.0, OPTIONS) is None


def test_more_than_so_many_steps_an_hour_are_asked_about() -> None:
    job = Job(as_predicted(), planner=Planner(Caps(steps_an_hour=3)))
    for _ in range(5):
        job.run(20).run(2, frozenset())
    assert [step.must_be_asked for step in job.steps if step.why is Why.IMPACT] == [False] * 3 + [True] * 2
    # WHEN an hour is over THEN not
    job.now_s += 3600
    job.run(20)
    assert not job.steps[-1].must_be_asked


def test_what_a_step_gains_is_measured_also_if_less_is_slow_then() -> None:
    # GIVEN a step because of two slow links, of which nobody can name one any more then
    job = Job(as_predicted())
    both = SLOW | {"link 1 to 2"}
    job.run(8, both)
    assert job.said() == [(Level.REBALANCE, Why.IMPACT)]
    job.run(10, SLOW)
    effect = job.planner.take_effect()
    assert effect is not None
    assert effect.measured_s == pytest.approx(1.2)
