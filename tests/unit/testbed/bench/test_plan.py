"""Which runs a score has, and which of them methods of others hear."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from whichrank.testbed.bench.campaign import key_of
from whichrank.testbed.bench.methods.campaign import (
    NOT_DONE,
    OURS,
    Planned,
    Run,
    done_in,
    heard_of,
    left,
    plan,
    setup_of,
)
from whichrank.testbed.bench.methods.score import METHODS, Outcome
from whichrank.testbed.bench.setup import Setup
from whichrank.testbed.lab.scenarios import CLAIMED, SCENARIOS


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_each_scenario_is_heard_from_some_seed_on_and_all_seeds_have_their_part(seeds: int) -> None:
    runs = plan(SCENARIOS, seeds)

    assert len({run.key for run in runs}) == len(runs) == seeds * len(SCENARIOS)
    first = {run.scenario: run.seed for run in reversed(runs) if run.may_be_heard}
    assert set(first) == set(SCENARIOS)
    assert max(Counter(first.values()).values()) - min(Counter(first.values()).values()) <= 1
    assert set(first.values()) == set(range(seeds))


def test_what_others_claim_is_heard_in_every_run() -> None:
    assert all(run.may_be_heard for run in plan(CLAIMED, 3))


def ran(planned: Planned, *heard_by: str, verdict: str = "right") -> Run:
    outcomes = {name: Outcome("right") for name in (*heard_by, OURS)}
    name, seed, launcher = planned.scenario.name, planned.seed, planned.launcher
    has_steps = planned.has_steps
    return Run(name, "H1", seed, "ddp", launcher, verdict, False, None, 1.0, outcomes, {}, [], has_steps=has_steps)


def test_torchrun_does_for_either_launcher_and_preloaded_only_for_itself() -> None:
    # GIVEN a scenario with two seeds, run once as it is and once with ranks that are all preloaded
    usual, quick = plan(SCENARIOS[:1], 2), plan(SCENARIOS[:1], 2, "preloaded")
    assert [run.launcher for run in usual] == ["torchrun", "preloaded"]
    # THEN what has run under torchrun is not run again, and what has not is
    assert left(quick, {run.key: ran(run) for run in usual}, ()) == []
    assert left(usual, {run.key: ran(run) for run in quick}, ()) == usual[:1]


def test_a_run_without_steps_is_another_run() -> None:
    # GIVEN all runs of two scenarios with optimizer steps, in a file
    usual, without = plan(SCENARIOS[:2], 2), plan(SCENARIOS[:2], 2, has_steps=False)
    known = {run.key: run for run in map(ran, usual)}
    # WHEN they are asked for without THEN all are to be run, and stand beside the others
    assert left(without, known, ()) == without
    assert [setup_of(planned, is_heard=False).has_steps for planned in (usual[0], without[0])] == [True, False]
    assert known | {run.key: run for run in map(ran, without)} != known
    assert left(without, known | {run.key: run for run in map(ran, without)}, ()) == []


def test_a_run_of_before_had_steps(tmp_path: Path) -> None:
    # GIVEN a line of a file that does not say whether
    line = msgspec.to_builtins(ran(plan(SCENARIOS[:1], 1)[0])) | {"workload": SCENARIOS[0].workload(0)}
    del line["has_steps"]
    (tmp_path / "results.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    # THEN it is one with steps
    assert [key[2] for key in done_in(tmp_path / "results.jsonl")] == [True]


def test_a_trial_of_the_demo_without_steps_is_another_trial() -> None:
    usual, without = Setup("stop"), Setup("stop", has_steps=False)
    keys = [key_of(msgspec.to_builtins(setup)) for setup in (usual, without)]
    assert keys[0] != keys[1]
    before = msgspec.to_builtins(usual)
    del before["has_steps"]
    assert key_of(before) == keys[0]
    # AND its ranks are reported so
    assert "WHICHRANK_STEPS" not in usual.environment()
    assert without.environment()["WHICHRANK_STEPS"] == "0"


def test_what_is_left_is_what_was_not_done_and_what_was_not_heard() -> None:
    # GIVEN two scenarios with two seeds, of which one run was not done, and one scenario has not been heard
    runs = plan(SCENARIOS[:2], 2)
    known = {run.key: ran(run) for run in runs}
    first, second = (run for run in runs if run.seed == 1)
    known[first.key] = ran(first, *METHODS)
    assert left(runs, known, ()) == []
    # THEN the one that was not is done again, where it may be heard first
    assert left(runs, known, list(METHODS)) == [second]
    # AND so is the other
    known[first.key] = ran(first, verdict=NOT_DONE)
    assert left(runs, known, ()) == [first]
    assert left(runs, {}, ()) == runs


def test_a_run_that_is_in_no_plan_was_heard_for_nothing() -> None:
    # GIVEN a file of five seeds, of which a scenario was heard in the last one WHEN one seed is asked for
    every = plan(SCENARIOS[:1], 5)
    known = {run.key: ran(run, *(METHODS if run.seed == 4 else ())) for run in every}
    first = plan(SCENARIOS[:1], 1)
    # THEN it is run again, to be heard
    assert heard_of(every, known, list(METHODS)) == {first[0].scenario.name}
    assert (heard_of(first, known, list(METHODS)), left(first, known, list(METHODS))) == (set(), first)


def test_each_claim_is_heard_again_by_a_method_that_has_not_heard_it() -> None:
    runs = plan(CLAIMED, 2)
    known = {run.key: ran(run, "ras") for run in runs}
    assert left(runs, known, ["ras"]) == []
    assert left(runs, known, ["ras", "c4d"]) == runs
