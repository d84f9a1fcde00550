"""Our readings of other methods say of plain faults what their papers say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from observed_jobs import JOBS, job, observed

from whichrank.testbed.bench.paper import dissimilar, heat_map, late_entry, trace_graph
from whichrank.testbed.bench.paper.cells import CELLS, FIRST_SEED
from whichrank.testbed.bench.paper.finding import LEAST, Finding, Part, that_recur
from whichrank.testbed.bench.paper.hear import METHODS, OURS, hear
from whichrank.testbed.bench.paper.observed import Observed
from whichrank.testbed.bench.paper.runs import judge
from whichrank.testbed.sim.faults import Fault
from whichrank.testbed.sim.program import Do

Slow = Callable[[Observed], list[Finding]]
READINGS = (trace_graph.name_slow, late_entry.name_slow, dissimilar.name_slow, heat_map.name_slow)
SLOW = Fault("slow", "block", 3, microbatch=1, phase=1, delay_s=0.5, onset=12)


def ranks(findings: list[Finding]) -> set[int]:
    return {rank for one in findings for rank in one.ranks}


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("reading", READINGS)
def test_rank_that_is_very_slow_is_named(reading: Slow, name: str) -> None:
    assert ranks(reading(observed(job(name), SLOW))) == {3}


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("reading", READINGS)
def test_nobody_is_named_in_a_sound_job(reading: Slow, name: str) -> None:
    assert reading(observed(job(name), Fault("healthy"))) == []


def test_trace_graph_names_the_block() -> None:
    (found,) = trace_graph.name_slow(observed(job("tp2-pp2-dp2"), SLOW))
    assert found.part == Part(phase=1, microbatch=1)


def test_trace_graph_says_no_microbatch_where_all_are_slow() -> None:
    fault = Fault("slow", "forward", 1, phase=0, factor=3.0, onset=12)
    (found,) = trace_graph.name_slow(observed(job("dp4"), fault))
    assert found == Finding((1,), part=Part(phase=0))


def test_trace_graph_leaves_out_what_is_below_its_threshold() -> None:
    fault = Fault("slow", "all", 1, factor=1.3, onset=12)
    assert trace_graph.name_slow(observed(job("dp4"), fault)) == []
    # AND the heat map, whose threshold is a tenth, does not
    assert ranks(heat_map.name_slow(observed(job("dp4"), fault))) == {1}


def test_a_name_must_recur() -> None:
    part = Part(0, 1)
    assert that_recur([{2: part}] * (LEAST - 1) + [{}] * 9) == []
    assert that_recur([{2: part}, {}] * LEAST) == []
    assert that_recur([{2: part}, {}, {2: Part()}, {2: part}, {2: part}]) == [Finding((2,), part=part)]


def test_hang_is_named_by_the_methods_that_know_hangs() -> None:
    # GIVEN a rank that stops in the backward pass of microbatch 2
    drawn = job("tp2-pp2-dp2")
    items = drawn.run().programs[0]
    at = next(at for at, item in enumerate(items) if item.do is Do.OWN and (item.phase, item.microbatch) == (1, 2))
    fault = Fault("hang", "backward", 1, microbatch=2, phase=1, item=at, onset=6)
    incidents, findings = hear(drawn, fault)
    said = {name: ranks(findings[name]) for name in METHODS if name != OURS}
    # THEN MegaTrace says rank and part, the watchdog of peers the rank, and who looks at slow iterations nothing
    assert {culprit.rank for one in incidents for culprit in one.culprits} == {1}
    assert said["megatrace"] == said["jit"] == {1}
    assert findings["megatrace"][0].part == Part(phase=1, microbatch=2)
    assert said["minder"] == said["megascale"] == said["holmes"] == set()


@pytest.mark.parametrize("do", [Do.SEND, Do.SHARE])
def test_halt_point_is_where_something_was_lost(do: Do) -> None:
    # GIVEN a message, or a collective, of the first stage that nobody receives, in the forward pass of microbatch 1
    drawn = job("tp2-pp2-dp2")
    items = drawn.run().programs[0]
    at = next(at for at, item in enumerate(items) if item.do is do and (item.phase, item.microbatch) == (0, 1))
    fault = Fault("hang", "lost collective", 1, microbatch=1, phase=0, item=at, onset=6)
    if do is Do.SEND:
        fault = replace(fault, where="lost message", rank=5, sender=1)
    _, findings = hear(drawn, fault)
    assert findings["megatrace"][0].part == Part(phase=0, microbatch=1)
    assert findings["jit"] == []


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([], "silent"),
        ([Finding((3,))], "right"),
        ([Finding((3,)), Finding((2,))], "wrong"),
        ([Finding(links=((0, 1),))], "wrong"),
    ],
)
def test_every_word_counts(findings: list[Finding], verdict: str) -> None:
    assert judge(SLOW, frozenset(), findings).verdict == verdict


def test_nobody_need_be_named_for_what_was_lost() -> None:
    lost = replace(SLOW, kind="hang", where="lost message", sender=1)
    ends = frozenset({1, 3})
    assert judge(lost, ends, [Finding()]).verdict == "right"
    assert judge(lost, ends, [Finding((1,))]).verdict == "right"
    assert judge(lost, ends, [Finding((0,))]).verdict == "wrong"
    assert judge(replace(lost, where="backward"), frozenset(), [Finding()]).verdict == "unknown"


def test_each_cell_has_chances_of_its_own() -> None:
    assert len({cell.number for cell in CELLS.values()}) == len(CELLS)
    job_, fault = CELLS["slow 2x"].drawn(3)
    assert (fault.kind, fault.factor, fault.onset >= 15, job_.seed < FIRST_SEED) == ("slow", 2.0, True, True)
