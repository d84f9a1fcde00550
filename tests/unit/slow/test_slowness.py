"""Slow, told from a simulated job whose truth is known: who, since when, at what cost, and where it is nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import simulated_job
from simulated import Call, Compute, Long, Program, Reported, Slower, Wait, ddp, run, tp_pp_dp
from simulated_job import watch

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.incident import Cause, Incident, Reason
from whichrank.model.kinds import Kind, is_message
from whichrank.model.telemetry import Batch
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import gpipe
from whichrank.testbed.sim.run import Run
from whichrank.testbed.sim.telemetry import Agents

NOISE = 0.05
WINDOW_S = 6.0
DP = 2001
"""Of ranks 1 and 3 in `tp_pp_dp`."""
LAYOUTS: dict[str, Callable[[], list[Program]]] = {"dp8": lambda: ddp(8), "tp2-pp2-dp2": tp_pp_dp}


@pytest.fixture(autouse=True, params=[True, False], ids=["steps", "no-steps"])
def with_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each of these with optimizer steps, and with operations alone."""
    monkeypatch.setattr(simulated_job, "WITH_STEPS", request.param)
    return bool(request.param)


def factors(of: Callable[[int, int, Compute], float], seed: int = 0) -> Slower:
    """What ranks compute takes so many times as long, with noise on each piece."""
    rng = np.random.default_rng(seed)
    return lambda rank, i, what: what.seconds * of(rank, i, what) * max(0.2, 1 + NOISE * rng.standard_normal())


def said(programs: list[Program], of: Callable[[int, int, Compute], float], iterations: int = 100) -> list[Incident]:
    return watch(run(programs, iterations, factors(of)), WINDOW_S)


def names(incidents: list[Incident]) -> set[int]:
    return {c.rank for i in incidents for c in i.culprits}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_said_of_a_healthy_job(layout: str) -> None:
    assert said(LAYOUTS[layout](), lambda *_: 1.0) == []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("factor", [1.5, 2.0, 5.0])
def test_a_rank_that_is_slow_from_the_start_is_named_and_nobody_else(layout: str, factor: float) -> None:
    # GIVEN a rank whose own time is longer from the first iteration on
    incidents = said(LAYOUTS[layout](), lambda rank, *_: factor if rank == 5 else 1.0)

    # THEN one alert names it, with a class and with what it costs
    (incident,) = incidents
    assert (incident.severity, incident.kind, incident.cause) == ("alert", "slow", Cause.COMPUTE_SLOW)
    assert (incident.fault_class, names(incidents)) == ("S1", {5})
    reported = {e.what: e.value for e in incident.evidence}
    assert reported["iteration time if this rank were not slow"] < reported["iteration time"]
    assert reported["own time per iteration"] == pytest.approx(factor * reported["own time of its peers"], rel=0.05)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_reported_since_which_iteration(layout: str) -> None:
    (incident,) = said(LAYOUTS[layout](), lambda rank, i, _: 1.4 if rank == 2 and i >= 60 else 1.0, 150)
    assert names([incident]) == {2}
    assert incident.stage is not None
    assert incident.stage.iteration == pytest.approx(60, abs=2)


def test_two_slow_ranks_are_two_incidents() -> None:
    incidents = said(tp_pp_dp(), lambda rank, *_: {2: 1.6, 5: 2.0}.get(rank, 1.0))
    assert [sorted(names([i])) for i in sorted(incidents, key=lambda i: i.culprits[0].rank)] == [[2], [5]]


def test_of_two_ranks_with_the_same_excess_in_each_iteration_none_is_named() -> None:
    # GIVEN a rank that is slow, and another that waits for it where no operation is seen
    slow = np.random.default_rng(5).normal(1.6, 0.05, 200)
    noise = np.random.default_rng(6)

    def of(rank: int, i: int, what: Compute) -> float:
        return what.seconds * (slow[i] if rank in (2, 3) and i >= 30 else max(0.2, noise.normal(1.0, NOISE)))

    incidents = watch(run(ddp(8), 150, of), WINDOW_S)
    # THEN both are candidates, and what would decide it is said
    assert names(incidents) == set()
    (incident,) = incidents
    assert (incident.severity, incident.cause) == ("alert", Cause.UNKNOWN)
    assert sorted(c.rank for c in incident.candidates) == [2, 3]
    assert all(any(f"--rank {rank}" in step for step in incident.next) for rank in (2, 3))


def test_two_ranks_that_are_as_slow_by_chance_are_named() -> None:
    # GIVEN two that are slow alike, each with noise of its own
    incidents = said(ddp(8), lambda rank, i, _: 1.6 if rank in (2, 3) and i >= 30 else 1.0, 150)
    assert names(incidents) == {2, 3}


def test_two_that_were_named_are_not_taken_back_when_they_happen_to_be_alike_later() -> None:
    # GIVEN two of which one is slower than the other at first, and which later take as long in each iteration
    alike = np.random.default_rng(5).normal(1.6, 0.05, 400)
    noise = np.random.default_rng(6)

    def of(rank: int, i: int, what: Compute) -> float:
        if rank in (2, 3) and i >= 120:
            return what.seconds * alike[i]
        return what.seconds * max(0.2, noise.normal({2: 1.5, 3: 2.0}.get(rank, 1.0) if i >= 30 else 1.0, NOISE))

    incidents = watch(run(ddp(8), 300, of), WINDOW_S)
    assert names(incidents) == {2, 3}
    assert {i.cause for i in incidents} == {Cause.COMPUTE_SLOW}
    assert len({i.id for i in incidents}) == 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_comes_and_goes_on_one_rank_is_one_incident(layout: str) -> None:
    incidents = said(LAYOUTS[layout](), lambda rank, i, _: 2.0 if rank == 5 and i >= 10 and i % 22 < 8 else 1.0, 200)
    assert names(incidents) == {5}
    assert len({i.id for i in incidents}) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_excess_that_moves_from_rank_to_rank_is_an_imbalance(layout: str) -> None:
    turns = np.random.default_rng(3).integers(8, size=200)
    incidents = said(LAYOUTS[layout](), lambda rank, i, _: 2.0 if turns[i] == rank else 1.0, 150)
    assert {(i.cause, i.severity) for i in incidents} == {(Cause.IMBALANCE, "notice")}
    assert names(incidents) == set()


def test_ranks_that_are_slow_one_after_the_other_are_not_named_each_in_its_turn() -> None:
    # GIVEN turns that are long enough for each rank to be found
    own_s = np.random.default_rng(3).normal(0.1, 0.002, (400, 2, 8))
    turn = np.arange(400) // 10 % 8
    own_s[np.arange(400), :, turn] *= 2.0

    # THEN it is one imbalance as soon as two of them are no more
    incidents = watch(Long(own_s), WINDOW_S, every_s=0.5)
    assert incidents[-1].cause == Cause.IMBALANCE or incidents[-1].status == "recovered"
    assert len({i.id for i in incidents if i.cause == Cause.IMBALANCE}) == 1
    assert len(names(incidents)) <= 3


def test_a_rank_that_stays_slow_is_named_after_others_were() -> None:
    # GIVEN two ranks that were slow for a while, and a third that is from then on
    own_s = np.random.default_rng(3).normal(0.1, 0.002, (400, 2, 8))
    for rank, since, until in ((1, 40, 60), (2, 60, 80), (3, 80, 400)):
        own_s[since:until, :, rank] *= 2.0
    incidents = watch(Long(own_s), WINDOW_S, every_s=0.5)
    last = {tuple(sorted(names([i]))): i.status for i in incidents}
    assert last == {(1,): "recovered", (2,): "recovered", (3,): "open"}


def test_a_job_that_is_started_again_is_polled_from_its_first_iterations_on() -> None:
    # GIVEN a job in which a rank was slow WHEN all its processes are replaced, and count from one again
    rng = np.random.default_rng(4)
    before, after = rng.normal(0.1, 0.002, (300, 2, 8)), rng.normal(0.1, 0.002, (100, 2, 8))
    before[100:, :, 3] *= 2.0
    after[:, :, 6] *= 2.0
    incidents = watch(Long(before), WINDOW_S, every_s=0.5, again=Long(after))
    # THEN what was is over, and what is now is reported
    last = {tuple(sorted(names([i]))): i.status for i in incidents}
    assert last == {(3,): "recovered", (6,): "open"}


def test_many_ranks_that_are_slow_alike_are_reported_and_not_called_uneven() -> None:
    # GIVEN more slow ranks than are reported one by one
    own_s = np.random.default_rng(4).normal(0.1, 0.004, (150, 2, 64))
    slow = np.arange(64) % 3 == 0
    own_s[40:, :, slow] *= 1.5
    incidents = watch(Long(own_s), WINDOW_S, every_s=0.5)
    assert {i.cause for i in incidents} <= {Cause.COMPUTE_SLOW, Cause.UNKNOWN}  # of equal ones some may wait for others
    assert names(incidents) <= set(np.flatnonzero(slow).tolist())
    assert len(names(incidents)) >= 16


def test_one_long_pause_and_a_short_one_are_no_slowdown_of_long_iterations() -> None:
    # GIVEN iterations longer than a window, and two pauses of one rank in a row
    own_s = np.random.default_rng(4).normal(3.5, 0.02, (30, 2, 8))
    own_s[20, :, 3] *= 2.0
    own_s[21, :, 3] *= 1.2
    assert watch(Long(own_s), WINDOW_S, every_s=2.0) == []
    # WHEN it stays slow THEN it is reported
    own_s[22:, :, 3] *= 1.2
    assert names(watch(Long(own_s), WINDOW_S, every_s=2.0)) == {3}


def test_a_slow_rank_is_found_where_iterations_are_too_short_to_keep_a_window_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("whichrank.detect.own_times.ALL_KEPT", 8 * 40)
    own_s = np.random.default_rng(4).normal(0.02, 0.001, (800, 2, 8))
    own_s[300:, :, 3] *= 1.5
    assert names(watch(Long(own_s), 20.0, every_s=0.5)) == {3}


def test_ranks_that_take_turns_to_have_no_cpu_are_reported_to_have_none() -> None:
    # GIVEN an excess that moves from rank to rank, and ranks that are ready for a third of the time without a CPU
    turns = np.random.default_rng(3).integers(8, size=200)
    reported = run(ddp(8), 150, factors(lambda rank, i, _: 2.0 if turns[i] == rank else 1.0))
    incidents = watch(reported, WINDOW_S, lambda _, now_s: 0.33 * now_s)
    assert {(i.cause, i.severity, i.reason) for i in incidents} == {(Cause.IMBALANCE, "notice", Reason.CPU_CONTENTION)}


def test_a_long_stage_and_what_it_hides_are_nobodys_fault() -> None:
    # GIVEN a last stage that has more to do, and a slower rank in the first one, which waits for it anyway
    incidents = said(tp_pp_dp(), lambda rank, *_: 2.5 if rank >= 4 else 1.5 if rank == 1 else 1.0)

    # THEN nobody is named
    assert {(i.cause, i.severity) for i in incidents} == {(Cause.IMBALANCE, "notice")}


@pytest.mark.parametrize("steepness", [1, 2], ids=["linear", "attention"])
def test_more_tokens_are_no_fault(steepness: int) -> None:
    # GIVEN a replica whose microbatches have half as many tokens again, and gradients that outweigh activations
    programs = _heavier(tp_pp_dp(), (0, 1, 4, 5), 1.5, steepness)

    # THEN the work is told to be uneven, for this reason
    incidents = said(programs, lambda *_: 1.0)
    assert {(i.cause, i.reason) for i in incidents} == {(Cause.IMBALANCE, Reason.MORE_TOKENS)}


def test_a_few_more_tokens_do_not_excuse_a_rank_that_is_slow(*, with_steps: bool) -> None:
    if not with_steps:
        pytest.skip("iterations of peers with other sizes in all of them begin with another operation")
    programs = _heavier(tp_pp_dp(), (0, 1, 4, 5), 1.05, 1)
    assert names(said(programs, lambda rank, *_: 2.0 if rank == 1 else 1.0)) == {1}


def _heavier(programs: list[Program], ranks: tuple[int, ...], factor: float, steepness: int) -> list[Program]:
    """The programs with more tokens on some ranks, and large gradients on all."""
    return [
        [_part(part, factor if rank in ranks else 1.0, steepness) for part in program]
        for rank, program in enumerate(programs)
    ]


def _part(part: Compute | Call | Wait, factor: float, steepness: int) -> Compute | Call | Wait:
    if isinstance(part, Compute) and part.what != "optimizer":
        return replace(part, seconds=factor**steepness * part.seconds)
    if isinstance(part, Call):
        return replace(part, elements=int(factor * 1000) if part.comm < 2000 else 50_000)
    return part


@pytest.mark.parametrize("longer", [False, True], ids=["more rows", "longer rows"])
def test_more_tokens_are_no_fault_where_nothing_that_is_exchanged_tells(longer: bool) -> None:
    # GIVEN plain data parallelism, in which one rank is given twice as much and takes so much longer
    factor = 4.0 if longer else 2.0
    job = run(ddp(8), 100, factors(lambda rank, *_: factor if rank == 5 else 1.0))
    incidents = watch(job, WINDOW_S, given=lambda rank, _: (2000, 20) if rank == 5 else (1000, 20))
    # THEN the work is told to be uneven, for this reason
    assert {(i.cause, i.reason, i.severity) for i in incidents} == {(Cause.IMBALANCE, Reason.MORE_TOKENS, "notice")}


def test_as_many_tokens_in_longer_sequences_are_no_fault() -> None:
    job = run(ddp(8), 100, factors(lambda rank, *_: 1.9 if rank == 5 else 1.0))
    incidents = watch(job, WINDOW_S, given=lambda rank, _: (1000, 40) if rank == 5 else (1000, 20))
    assert {i.cause for i in incidents} == {Cause.IMBALANCE}
    assert names(incidents) == set()


def test_more_tokens_do_not_excuse_what_takes_much_longer() -> None:
    job = run(ddp(8), 100, factors(lambda rank, *_: 3.0 if rank == 5 else 1.0))
    assert names(watch(job, WINDOW_S, given=lambda rank, _: (1200, 20) if rank == 5 else (1000, 20))) == {5}


def test_a_slow_rank_among_such_as_are_given_as_much_is_named() -> None:
    # GIVEN batches of any size, padded to the longest: all ranks are given another amount each time
    sizes = np.random.default_rng(5).uniform(0.5, 1.5, (8, 400))
    job = run(ddp(8), 300, factors(lambda rank, i, _: sizes[rank, i] * (2.5 if rank == 5 and i >= 150 else 1.0)))
    given = lambda rank, i: (int(1000 * sizes[rank, i]), 0)  # noqa: E731
    assert names(watch(job, WINDOW_S, given=given)) == {5}
    # BUT where none is slow, none is named
    job = run(ddp(8), 300, factors(lambda rank, i, _: sizes[rank, i]))
    assert names(watch(job, WINDOW_S, given=given)) == set()


def test_longer_sequences_on_all_ranks_are_no_slowdown() -> None:
    # GIVEN sequences that are twice as long from some iteration on: computation takes twice to four times as long
    for factor in (2.0, 3.0, 4.0):
        job = run(ddp(8), 200, factors(lambda _, i, __, f=factor: f if i >= 90 else 1.0))
        assert watch(job, WINDOW_S, given=lambda _, i: (2000, 40) if i >= 90 else (1000, 20)) == []
    # BUT what takes longer than that explains is one
    job = run(ddp(8), 200, factors(lambda _, i, __: 8.0 if i >= 90 else 1.0))
    (incident,) = watch(job, WINDOW_S, given=lambda _, i: (2000, 40) if i >= 90 else (1000, 20))
    assert (incident.cause, incident.culprits) == (Cause.COMPUTE_SLOW, ())


def test_a_rank_without_peers_that_is_given_more_than_before_is_not_slow() -> None:
    pipeline = tp_pp_dp(1, 4, 1)
    job = run(pipeline, 180, factors(lambda rank, i, _: 1.5 if rank == 2 and i >= 80 else 1.0))
    assert names(watch(job, WINDOW_S, given=lambda rank, i: (1500 if rank == 2 and i >= 80 else 1000, 20))) == set()


def test_all_slower_alike_is_reported_with_the_factor_and_without_a_name() -> None:
    (incident,) = said(ddp(8), lambda _, i, __: 1.5 if i >= 90 else 1.0, 200)
    assert (incident.cause, incident.culprits) == (Cause.COMPUTE_SLOW, ())
    assert incident.evidence[0].value == pytest.approx(1.5, abs=0.05)


def longer_transfers(since: int, until: int, iterations: int, factor: float) -> Long:
    """Eight ranks whose transfers take so many times as long in these iterations, and no kernel says of which way."""
    own_s = np.random.default_rng(3).normal(0.06, 0.002, (iterations, 1, 8))
    transfer_s = np.full((iterations, 1), 0.04)
    transfer_s[since:until] *= factor
    return Long(own_s, transfer_s)


def test_longer_iterations_that_nothing_explains_are_a_notice(*, with_steps: bool) -> None:
    # GIVEN transfers that take longer on all ranks
    (begun, over) = watch(longer_transfers(150, 400, 600, 2.0), WINDOW_S)
    # THEN that is said, since when, and what would decide it; and when it was over, which is known later
    assert (begun.severity, begun.cause, begun.culprits, begun.candidates) == ("notice", Cause.UNKNOWN, (), ())
    assert begun.stage is not None
    assert begun.stage.iteration == pytest.approx(150 if with_steps else 30, abs=6)  # without: five together
    reported = {e.what: e.value for e in begun.evidence}
    assert reported["iteration time"] / reported["iteration time before"] == pytest.approx(1.4, abs=0.05)
    assert "whichrank validate" in begun.next[0]
    assert (over.id, over.status, over.next) == (begun.id, "recovered", ())
    assert over.ended is not None
    assert over.onset is not None
    assert (over.ended - over.onset).total_seconds() == pytest.approx(250 * 0.14, abs=2.0)


def test_longer_iterations_with_less_cpu_are_explained_and_nothing_is_to_be_measured() -> None:
    # GIVEN transfers that take longer from some iteration on, on nodes that have less CPU time since then
    reported = run(ddp(8), 260, factors(lambda *_: 1.0), lambda _, i: 25.0 if i > 4 * 120 else 1.0)
    slow_from_s = step_at_s(reported, 120)
    (incident,) = watch(reported, WINDOW_S, lambda _, now_s: 0.3 * max(0.0, now_s - slow_from_s))
    # THEN the notice has that reason, and does not advise to measure
    assert (incident.severity, incident.cause, incident.culprits) == ("notice", Cause.UNKNOWN, ())
    assert (incident.reason, incident.next) == (Reason.CPU_CONTENTION, ())


def test_which_communicator_takes_longer_than_comparable_ones_is_reported() -> None:
    # GIVEN three kinds of parallelism, and a data-parallel communicator whose transfers take much longer in the end
    reported = run(tp_pp_dp(), 160, factors(lambda *_: 1.0), lambda comm, i: 40.0 if comm == DP and i > 80 else 1.0)
    # WHEN it is watched THEN nobody is named, and the notice names that communicator alone
    (incident,) = watch(reported, WINDOW_S)
    assert (incident.severity, incident.cause, incident.culprits) == ("notice", Cause.UNKNOWN, ())
    (fact,) = [fact for fact in incident.evidence if fact.what.startswith("time in operations")]
    assert fact.where == "ranks 1 and 3"
    assert fact.unit == "times that of 3 comparable communicators"
    assert float(fact.value) > 5.0


def test_iterations_that_are_a_little_longer_are_no_notice() -> None:
    assert watch(longer_transfers(150, 400, 600, 1.4), WINDOW_S) == []


def step_at_s(reported: Reported, number: int) -> float:
    """When rank 0 made this step."""
    steps = reported.arrays()[1]
    step = steps[(steps["rank"] == 0) & (steps["counter"] == number)][0]
    return (int(step["at_ns"]) - int(Reported.clock(step["rank"]))) / 1e9


def test_a_reason_is_measured_against_what_slow_iterations_take() -> None:
    # GIVEN a rank that is ten times as slow from some iteration on, when most iterations of the window are short still,
    # and a hypervisor that takes most of its time since then
    reported = run(ddp(8), 120, factors(lambda rank, i, _: 10.0 if rank == 5 and i >= 105 else 1.0))
    slow_from_s = step_at_s(reported, 105)
    incidents = watch(reported, WINDOW_S, lambda rank, now_s: 0.8 * max(0.0, now_s - slow_from_s) * (rank == 5))
    # THEN that is the reason from the first word on
    assert {(names([i]) == {5}, i.reason) for i in incidents} == {(True, Reason.CPU_CONTENTION)}


def test_all_slower_since_the_hypervisor_took_their_cpus_is_a_notice() -> None:
    # GIVEN all ranks are slower by half from some iteration on, and a third of their CPU time is taken from then on
    reported = run(ddp(8), 200, factors(lambda _, i, __: 1.5 if i >= 90 else 1.0))
    slow_from_s = step_at_s(reported, 90)
    (incident,) = watch(reported, WINDOW_S, lambda _, now_s: 0.33 * max(0.0, now_s - slow_from_s))
    # THEN that is reported, and it is no alert
    assert (incident.severity, incident.culprits, incident.reason) == ("notice", (), Reason.CPU_CONTENTION)


def test_a_rank_without_peers_is_measured_by_its_own_past() -> None:
    # GIVEN a pipeline of four stages of one rank each
    pipeline = tp_pp_dp(1, 4, 1)

    # THEN one that is slow from the start may be meant so, and one that becomes slow is named
    assert names(said(pipeline, lambda rank, *_: 1.5 if rank == 2 else 1.0)) == set()
    assert names(said(pipeline, lambda rank, i, _: 1.5 if rank == 2 and i >= 80 else 1.0, 180)) == {2}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pauses_of_every_rank_now_and_then_do_not_add_up(layout: str) -> None:
    # GIVEN a pause of 200 ms of each rank once in 500 forward passes
    rng = np.random.default_rng(7)
    steady = factors(lambda *_: 1.0)

    def paused(rank: int, i: int, what: Compute) -> float:
        return steady(rank, i, what) + (0.2 if what.what == "forward" and rng.random() < 1 / 500 else 0.0)

    assert watch(run(LAYOUTS[layout](), 400, paused), WINDOW_S) == []


def test_an_hour_of_noise_and_pauses_is_healthy() -> None:
    # GIVEN an hour of steps of 0.25 s with 5 % of noise on each piece, and a pause of each rank in every 2,000 steps
    steps, ranks, every = 14_000, 8, 2_000
    rng = np.random.default_rng(11)
    own_s = np.array([0.12, 0.06, 0.06])[:, None] * np.maximum(0.2, 1 + NOISE * rng.standard_normal((steps, 3, ranks)))
    for rank in range(ranks):
        at = np.arange(0, steps, every) + rng.integers(0, every, steps // every)
        own_s[at, rng.integers(0, 3, len(at)), rank] += 0.2
    # THEN nothing is said, with the default window
    assert watch(Long(own_s), 60.0, every_s=15.0) == []


@pytest.mark.parametrize("seed", [2, 4, 15, 23])
def test_who_was_unlucky_for_some_iterations_among_large_pauses_is_not_named(seed: int) -> None:
    # GIVEN ranks of which each pauses for about a second in one of ten iterations, and noise of a fifth
    rng = np.random.default_rng(seed)
    own_s = 0.1 * np.maximum(0.2, 1 + 0.2 * rng.standard_normal((150, 2, 8)))
    own_s[:, 0] += np.where(rng.random((150, 8)) < 0.1, rng.uniform(0.4, 1.3, (150, 8)), 0.0)
    # THEN nobody is
    assert names(watch(Long(own_s), 10.0)) == set()


def test_an_evaluation_of_one_rank_in_every_tenth_iteration_is_no_slowdown() -> None:
    rng = np.random.default_rng(7)

    def evaluating(rank: int, i: int, what: Compute) -> float:
        return what.seconds * (1 + NOISE * rng.standard_normal()) + (
            0.5 if rank == 0 and i % 10 == 0 and what.what == "optimizer" else 0.0
        )

    assert watch(run(ddp(8), 200, evaluating), WINDOW_S) == []


def test_it_is_over_when_it_is_over() -> None:
    incidents = said(ddp(8), lambda rank, i, _: 2.0 if rank == 3 and 30 <= i < 90 else 1.0, 250)
    assert [(i.status, sorted(names([i]))) for i in incidents] == [("open", [3]), ("recovered", [3])]


def test_nothing_is_said_of_jobs_that_communicate_from_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    import simulated_job

    monkeypatch.setattr(simulated_job, "BACKEND", "nccl")
    assert said(ddp(8), lambda rank, *_: 2.0 if rank == 5 else 1.0) == []


def with_broadcast(root_of: Callable[[int], int]) -> list[Program]:
    """A data-parallel job whose ranks get their data from a root."""
    return [[Call(4, Kind.BROADCAST, peer=root_of(rank)), *program] for rank, program in enumerate(ddp(8))]


def test_a_root_that_is_slow_from_the_start_may_have_more_to_do_by_design() -> None:
    # GIVEN a job in which rank 0 sends data to all, and is slower from the first iteration on
    incidents = said(with_broadcast(lambda _: 0), lambda rank, *_: 1.5 if rank == 0 else 1.0)

    # THEN it is a candidate of a notice, and nobody is named
    assert {(i.severity, i.cause) for i in incidents} == {("notice", Cause.UNKNOWN)}
    assert [c.rank for c in incidents[0].candidates] == [0]


def test_a_root_that_becomes_slow_is_named_and_so_is_any_other_rank() -> None:
    assert names(said(with_broadcast(lambda _: 0), lambda rank, i, _: 1.5 if rank == 0 and i >= 60 else 1.0, 150)) == {
        0
    }
    assert names(said(with_broadcast(lambda _: 0), lambda rank, *_: 1.5 if rank == 3 else 1.0)) == {3}


def from_anyone(batch: Batch) -> Batch:
    """The same with receives from any source instead of all messages."""
    rows = batch.record_rows().copy()
    messages = is_message(rows["row"]["kind"]) & (rows["row"]["kind"] < Kind.STEP)
    rows["row"]["kind"][messages], rows["row"]["peer"][messages] = Kind.RECV_ANY, -1
    return msgspec.structs.replace(batch, records=rows.tobytes())


def test_stages_that_receive_from_anyone_are_different_positions() -> None:
    # GIVEN a pipeline of four stages, the middle ones of which differ in nothing but their place
    job, analyzer = Run(Layout(dp=2, pp=4), gpipe(4, 4)), Analyzer(AnalyzerConfig(), "simulated", 0.0)
    agents = Agents(job)
    for done in range(8):
        analyzer.feed_all([from_anyone(batch) for batch in agents.report([job.iterate()])], 10.0 * done)
        analyzer.tick(10.0 * done)

    # THEN ranks of one stage are in one position, and those of others in others
    window = analyzer.slowness.iterations.window(np.arange(8), 1e9)
    assert window is not None
    of_stage = window.position.reshape(4, 2)
    assert (of_stage[:, 0] == of_stage[:, 1]).all()
    assert len(set(of_stage[:, 0].tolist())) == 4


@pytest.mark.parametrize("is_limited", [False, True])
def test_limited_rank_costs_what_its_transfers_take_longer_too(is_limited: bool) -> None:
    # GIVEN a rank that takes longer for backward passes, and at the same time a transfer behind the first of them that
    # takes so long that the others cost nothing
    def longer(rank: int, iteration: int, work: Compute) -> float:
        return work.seconds * (3 if rank == 2 and iteration >= 200 and work.what == "backward" else 1)

    job = run(ddp(4, own_s=0.04), 250, longer, lambda _, number: 150.0 if number > 800 and number % 4 == 1 else 1.0)
    began_s = next(at_ns for rank, step, _, at_ns in job.steps if (rank, step) == (2, 200)) - Reported.clock(2)

    # WHEN a limit holds the rank back most of the time since then, or nothing is known of it
    def throttled_s(rank: int, now_s: float) -> float:
        return 0.9 * max(0.0, now_s - began_s / 1e9) if rank == 2 and is_limited else 0.0

    incidents = watch(job, throttled_s=throttled_s)
    # THEN it is named with the limit, and costs what iterations take longer than before
    named = [one for one in incidents if one.culprits]
    assert bool(named) == is_limited
    for one in named:
        assert ([c.rank for c in one.culprits], one.reason) == ([2], Reason.CPU_LIMIT)
        usual_s = next(e.value for e in one.evidence if e.what == "iteration time if this rank were not slow")
        assert usual_s == pytest.approx(0.05, abs=0.01)
