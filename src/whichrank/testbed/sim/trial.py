"""One simulated job under a real analyzer, and what it says against the truth.

The truth of what is slow is its effect, as in MegaTrace, section V.A: the same job is computed without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.incident import Incident
from whichrank.model.telemetry import Batch
from whichrank.slow.effect import EFFECT
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Schedule, gpipe, interleaved, one_f_one_b
from whichrank.testbed.sim.chunks import stopped
from whichrank.testbed.sim.clocks import BEGIN_S
from whichrank.testbed.sim.faults import Fault, ends_of, phases_of
from whichrank.testbed.sim.noise import SPREAD
from whichrank.testbed.sim.run import Run, Times
from whichrank.testbed.sim.telemetry import Agents

CONFIG: Final = AnalyzerConfig(hang_timeout_s=8.0, notice_min_s=4.0, slow_window_s=4.0)
"""As short as in the lab."""
WATCHED_WINDOWS: Final = 5.0
"""After its onset what is slow is watched for so many windows of slowness."""
WATCHED_ITERATIONS: Final = 8
"""And for so many iterations, which may be long."""
WATCHED_HANG_S: Final = 14.0
BATCH_EVERY_S: Final = 0.5
BEFORE_S: Final = 5.0
"""An analyzer is there for so long before the ranks begin, as with `whichrank run`."""
EFFECT_ITERATIONS: Final = 6
LAYOUTS: Final = (
    "dp4", "dp8", "tp2-dp4", "tp4-dp4", "pp2-dp4", "pp4-dp2", "tp2-pp2-dp2", "tp2-pp4-dp2", "tp2-pp2-dp4",
    "tp4-pp4-dp2", "pp8-dp2", "tp2-cp2-dp4", "cp2-pp2-dp2", "dp8-ep4", "tp2-dp4-ep2-pp2",
)  # fmt: skip
SCHEDULES: Final = ("1f1b", "gpipe", "interleaved")
Verdict = Literal["right", "silent", "wrong", "unknown"]


@dataclass(frozen=True)
class Drawn:
    """A job by chance.

    Attributes:
        layout: Of its ranks.
        schedule: Of its pipelines, and its name.
        name: Of the schedule.
        layers: Of each stage.
        seed: Of chance.
        spread: Of own times.
    """

    layout: Layout
    schedule: Schedule
    name: str
    layers: int
    seed: int
    spread: float = SPREAD

    def run(self, fault: Fault | None = None) -> Run:
        """The job, with what is done to it."""
        run = Run(
            self.layout, self.schedule, self.layers, Times(forward_s=0.04 / self.layers, spread=self.spread), self.seed
        )
        if fault is not None:
            run.slower, run.longer = partial(fault.slower, run), partial(fault.longer, run)
        return run


def draw_job(seed: int, layouts: tuple[str, ...] = LAYOUTS) -> Drawn:
    """A layout, a schedule and the number of layers by chance; a forward pass takes 40 ms."""
    rng = np.random.default_rng([seed, 1])
    layout = Layout.parse(layouts[int(rng.integers(len(layouts)))])
    batches = layout.pp * int(rng.choice([1, 2, 4])) if layout.pp > 1 else int(rng.choice([1, 2, 4]))
    name = SCHEDULES[int(rng.integers(3 if layout.pp > 1 else 1))]
    if name == "interleaved":
        schedule = interleaved(layout.pp, 2, batches)
    else:
        schedule = (gpipe if name == "gpipe" else one_f_one_b)(layout.pp, batches)
    return Drawn(layout, schedule, name, int(rng.choice([1, 2, 4])), seed)


def longer_by(drawn: Drawn, fault: Fault) -> float:
    """By which share iterations are longer for a fault, on the same chances."""
    both = [_iteration_s(drawn.run(one)) for one in (replace(fault, onset=0), None)]
    return both[0] / both[1] - 1.0


def _iteration_s(run: Run) -> float:
    ends_s = [max(float(s.max()) for s in run.iterate().steps_s) for _ in range(EFFECT_ITERATIONS + 1)]
    return (ends_s[-1] - ends_s[0]) / EFFECT_ITERATIONS


def batches(drawn: Drawn, fault: Fault) -> Iterator[tuple[float, list[Batch]]]:
    """What agents report of the job, moment by moment, with the true time of each; first nothing.

    A job that hangs is watched for a while after it, one that is slow for some windows.
    """
    run = drawn.run(fault)
    agents = Agents(run, seed=drawn.seed)
    yield BEGIN_S - BEFORE_S, []
    pending, reported_s, end_s = [], BEGIN_S, np.inf
    while reported_s < end_s or run.done < fault.onset + WATCHED_ITERATIONS:
        iteration = run.iterate()
        pending.append(iteration)
        over_s = max(float(s[np.isfinite(s)].max(initial=BEGIN_S)) for s in iteration.steps_s)
        if iteration.number == fault.onset and fault.kind != "hang":
            end_s = over_s + WATCHED_WINDOWS * CONFIG.slow_window_s
        if not iteration.is_whole:
            if not iteration.has_moved:
                break
            continue
        if over_s - reported_s >= BATCH_EVERY_S:
            yield over_s, list(agents.report(pending, over_s))
            pending, reported_s = [], over_s
    if pending and not pending[-1].is_whole:
        stood_s = max(_stood_s(one.ops, reported_s) for one in pending)
        if fault.process:
            agents.change(fault.rank, replace(fault.process, ended_s=stood_s if fault.process.status >= 0 else 0.0))
        if fault.where == "lost collective":
            members = np.array(sorted(ends_of(fault, run)))
            agents.count_messages(members, *stopped(len(members), np.random.default_rng([drawn.seed, 3])))
        yield stood_s + 0.1, list(agents.report(pending, stood_s + 0.1))
        for at_s in np.arange(stood_s + BATCH_EVERY_S, stood_s + WATCHED_HANG_S, BATCH_EVERY_S).tolist():
            yield at_s, list(agents.report([], at_s))


def _stood_s(ops: list[np.ndarray[Any, Any]], since_s: float) -> float:
    """When the last operation was begun, or was over."""
    return max(since_s, *(float(max(one["t_issue_ns"].max(), one["t_end_ns"].max())) / 1e9 for one in ops))


def listen(drawn: Drawn, fault: Fault) -> list[Incident]:
    """Everything that an analyzer says of it, in order."""
    analyzer, said = Analyzer(CONFIG, "simulated", 0.0, is_live=True), list[Incident]()
    for at_s, told in batches(drawn, fault):
        analyzer.feed_all(told, at_s)
        said += analyzer.tick(at_s)
        if analyzer.slowness_failed:
            raise analyzer.slowness_failed
    return said


@dataclass(frozen=True)
class Score:
    """What was said against the truth.

    Attributes:
        is_due: Something is to be said: the job hangs, or a rank makes it slower by what is reported.
        verdict: `right`: the rank is named, or of what was lost nobody else; `wrong`: another one is.
        phase: Of the training stage, whether it is right; None where it is not said, or there is no one phase.
        microbatch: The same.
        longer: By which share iterations were longer.
    """

    is_due: bool
    verdict: Verdict
    phase: bool | None
    microbatch: bool | None
    longer: float


def verdict_of(fault: Fault, ends: frozenset[int], *, is_wrong: bool, names: bool, says: bool) -> Verdict:
    """What all words together are.

    Args:
        fault: The truth.
        ends: Between which ranks something was lost.
        is_wrong: Somebody is named who is not at fault.
        names: Somebody is named.
        says: Something is said.
    """
    if is_wrong:
        return "wrong"
    if names:
        return "right"
    if says and fault.kind == "hang":
        return "unknown" if {fault.rank} - ends else "right"
    return "silent"


def score(drawn: Drawn, fault: Fault, said: list[Incident]) -> Score:
    """Every alert counts: a wrong name that is followed by the right one was said all the same."""
    alerts = [one for one in said if one.severity == "alert"]
    named = {culprit.rank for one in alerts for culprit in one.culprits}
    links = {rank for one in alerts for link in one.links for rank in (link.src, link.dst)}
    ends = ends_of(fault, drawn.run())
    may = {fault.rank} - ends
    longer = longer_by(drawn, fault) if fault.kind == "slow" else 0.0
    is_due = fault.kind == "hang" or (fault.kind == "slow" and longer >= EFFECT)
    is_wrong = bool(named - may or links - ends - may)
    verdict = verdict_of(fault, ends, is_wrong=is_wrong, names=bool(named or links), says=bool(alerts))
    stages = [one.stage for one in alerts if one.stage is not None and one.stage.phase is not None]
    phases, phase, microbatch = phases_of(fault, drawn.run()), None, None
    if verdict == "right" and stages and phases:
        phase = stages[-1].phase in phases
        if stages[-1].microbatch is not None:
            microbatch = phase and stages[-1].microbatch == fault.microbatch
    return Score(is_due, verdict, phase, microbatch, longer)
