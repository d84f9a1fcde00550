"""A simulated job is a job: its ranks wait for each other, and an analyzer says of it what is true."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.incident import Incident
from whichrank.model.kinds import Kind
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Schedule, gpipe, interleaved, one_f_one_b
from whichrank.testbed.sim.program import Item
from whichrank.testbed.sim.run import Change, Floats, Iteration, Run, Times
from whichrank.testbed.sim.telemetry import Agents

QUIET = Times(spread=0.0, pauses=0.0)


def said(layout: str, schedule: Schedule, slower: Change | None, iterations: int = 40) -> list[Incident]:
    """What an analyzer says of a job whose iterations take about a second."""
    run = Run(Layout.parse(layout), schedule, slower=slower)
    agents, analyzer = Agents(run), Analyzer(AnalyzerConfig(slow_window_s=4.0), "simulated", 0.0)
    found: list[Incident] = []
    for _ in range(iterations):
        batches = list(agents.report([run.iterate()]))
        now_s = batches[0].sent_realtime_ns / 1e9
        analyzer.feed_all(batches, now_s)
        found += analyzer.tick(now_s)
        if analyzer.slowness_failed:
            raise analyzer.slowness_failed
    return found


def spans(iteration: Iteration, stage: int, kind: Kind) -> Floats:
    """Issue and end of the operations of one kind of the first rank of a stage, seconds, (n, 2)."""
    ops = iteration.ops[stage][0]
    ops = ops[ops["kind"] == kind]
    return np.stack((ops["t_issue_ns"], ops["t_end_ns"]), axis=1) / 1e9


def test_pipeline_takes_as_long_as_its_bubbles_make_it() -> None:
    # GIVEN four stages and eight microbatches of 30 ms a layer, without chance or transfers
    times = Times(forward_s=0.01, optimizer_s=0.0, share_s=0.0, message_s=0.0, reduce_s=0.0, spread=0.0, pauses=0.0)
    for schedule in (gpipe(4, 8), one_f_one_b(4, 8)):
        run = Run(Layout(pp=4), schedule, layers=1, times=times)
        first, second = run.iterate(), run.iterate()
        # THEN an iteration takes (microbatches + stages - 1) blocks forward and backward
        took_s = max(s.max() for s in second.steps_s) - max(s.max() for s in first.steps_s)
        assert took_s == pytest.approx((8 + 3) * 0.03, rel=0.1)


def test_messages_are_received_after_they_were_sent_and_in_order() -> None:
    run = Run(Layout(pp=2, dp=2), interleaved(2, 2, 4), times=QUIET)
    iteration = run.iterate()
    for sender, receiver in ((0, 1), (1, 0)):
        sent, received = spans(iteration, sender, Kind.SEND), spans(iteration, receiver, Kind.RECV)
        assert len(sent) == len(received) > 0
        assert (np.sort(received[:, 1]) >= np.sort(sent[:, 1]) - 1e-6).all()


def test_same_seed_gives_the_same_job() -> None:
    one, other = (Run(Layout(tp=2, dp=2, pp=2), one_f_one_b(2, 4), seed=5).iterate() for _ in range(2))
    assert all((a == b).all() for a, b in zip(one.ops, other.ops, strict=True))


@pytest.mark.parametrize("schedule", [gpipe(2, 4), one_f_one_b(2, 8), interleaved(2, 2, 8)])
def test_healthy_job_names_nobody(schedule: Schedule) -> None:
    assert not any(one.culprits for one in said("tp2-dp4-pp2", schedule, None))


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_rank_and_phase_are_named(stage: int, phase: int) -> None:
    # GIVEN a rank of some stage of a pipeline that becomes three times as slow in one phase
    def slower(iteration: int, item: Item, at: int, own_s: Floats) -> Floats:
        if iteration >= 15 and (at, item.phase) == (stage, phase):
            own_s[5] *= 3
        return own_s

    alerts = [one for one in said("tp2-dp4-pp4", one_f_one_b(4, 8), slower) if one.severity == "alert"]
    # THEN it is named, and the phase
    assert alerts
    assert {culprit.rank for one in alerts for culprit in one.culprits} == {8 * stage + 5}
    assert alerts[-1].stage is not None
    assert alerts[-1].stage.phase == ("forward", "backward")[phase]
