"""Methods of others count only where their sources claim something, and there by what they claim to do."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from batches import S

from whichrank.testbed.bench.methods import campaign, claims
from whichrank.testbed.bench.methods.campaign import METHOD_NAMES, OURS, Run, plan
from whichrank.testbed.bench.methods.claims import CLAIMS, KINDS, due_of, kind_of
from whichrank.testbed.bench.methods.flows import Flows
from whichrank.testbed.bench.methods.score import Outcome, Verdict, expected_of, judge
from whichrank.testbed.bench.methods.tables import (
    OTHERS,
    class_table,
    methods_table,
    picture,
    scenario_table,
    verdict_of,
)
from whichrank.testbed.bench.methods.word import Word
from whichrank.testbed.demo.plan import Truth
from whichrank.testbed.lab.scenarios import CLAIMED, SCENARIOS, chosen
from whichrank.wire.tape import FILE_NAME


def test_every_scenario_has_a_kind_and_every_method_claims_something_with_a_source() -> None:
    assert KINDS.keys() == CLAIMS.keys()
    faults = [fault for kind in KINDS.values() for fault in kind]
    assert len(faults) == len(set(faults))
    for scenario in (*SCENARIOS, *CLAIMED):
        assert kind_of(scenario.name)
    claiming = {method for methods in CLAIMS.values() for method in methods}
    assert claiming == set(METHOD_NAMES)
    assert claims.__doc__
    assert all(f"`{method}`" in claims.__doc__ for method in METHOD_NAMES)


@pytest.mark.parametrize(
    ("method", "scenario", "due"),
    [
        ("ras", "slow-compute x2", None),
        ("c4d", "slow-link-and-compute 50mbit claims", None),
        ("greyhound", "stop", None),
        ("greyhound", "slow-link 50mbit", "detect"),
        ("megatrace", "wrong-op", None),
        ("ccl-d", "slow-link 50mbit", "end"),
        ("ccl-d", "kill", None),
        ("ccl-d", "dead-spine", None),
    ],
)
def test_what_a_source_claims(method: str, scenario: str, due: str | None) -> None:
    assert due_of(method, scenario) == due


# ---- by what they claim ----------------------------------------------------------------------------------------------


def truth_of(effect: str, culprits: tuple[int, ...] = (), sources: tuple[int, ...] = ()) -> Truth:
    return Truth(
        fault="f", variant="", kind="outside", effect=effect, culprits=culprits, candidates=(), cause="", causes=(),
        reason="", reasons=(), hard=False, layout="", iteration=1, at_utc="", at_monotonic_ns=10 * S, sources=sources,
    )  # fmt: skip


def word(*ranks: int, kind: str = "slow", at_s: float = 20.0) -> Word:
    return Word(at_s, 1.0, kind, ranks)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ([word()], "right"),
        ([word(2)], "right"),
        ([word(3)], "wrong_name"),
        ([word(at_s=5.0)], "false_alarm"),
        ([word(kind="hang")], "missed"),
        ([], "missed"),
    ],
)
def test_who_claims_to_detect_need_not_name_but_names_nobody_wrong(words: list[Word], verdict: str) -> None:
    # GIVEN a slow rank 2 WHEN a method that claims to detect it has spoken
    expected = expected_of(truth_of("slow", (2,)), 8, "S1")
    assert judge(expected, words, 10.0, "detect").verdict == verdict


def test_the_other_end_of_a_slow_link_is_right_where_an_end_is_claimed() -> None:
    # GIVEN node 0 (ranks 0 and 1) sends slowly; rank 1 sends much to rank 2, and little to rank 7
    flows = Flows()
    flows._sent = {(1, 2): 9e8, (1, 7): 3e3, (3, 4): 9e8}
    truth = truth_of("slow-link", sources=(0, 1))
    ends = flows.other_ends(truth.sources, truth.targets)
    assert ends == {2}
    # THEN rank 2 is right as an end, and wrong as a name; ranks that have nothing to do with it are wrong as both
    as_end, as_name = expected_of(truth, 8, "S2", ends), expected_of(truth, 8, "S2")
    assert judge(as_end, [word(2)], 10.0, "end").verdict == "right"
    assert judge(as_name, [word(2)], 10.0).verdict == "wrong_name"
    assert judge(as_end, [word(7)], 10.0, "end").verdict == "wrong_name"
    # AND what others send to node 0 has its other end at the senders
    assert flows.other_ends((), (4,)) == {3}


def test_an_end_says_nothing_where_most_ranks_are_ends() -> None:
    truth = truth_of("slow-link", sources=(0, 1))
    assert expected_of(truth, 8, "S2", frozenset(range(2, 8))).may == {0, 1}


# ---- tables ----------------------------------------------------------------------------------------------------------


def ran(scenario: str, fault_class: str | None, **others: Verdict) -> Run:
    outcomes = {name.replace("_", "-"): Outcome(verdict, 5.0, 1.0) for name, verdict in others.items()}
    return Run(
        scenario, fault_class, 0, "ddp", "torchrun", "right", False, None, 1.0, {OURS: Outcome("right"), **outcomes},
        None, [],
    )  # fmt: skip


RUNS = [
    ran("stop", "H1", ccl_d="right", greyhound="right"),
    ran("kill", "H1", ccl_d="missed", greyhound="missed"),
    ran("slow-start x2", "S1", ccl_d="wrong_name", greyhound="missed"),
    ran("slow-compute x2", "S1", ccl_d="wrong_name", greyhound="right"),
    ran("more-tokens x2", None, ccl_d="wrong_name", greyhound="false_alarm"),
]


def test_what_is_not_claimed_is_in_no_denominator() -> None:
    # GIVEN runs of which the two methods claim some
    assert verdict_of(RUNS[1], "ccl-d") is None
    assert verdict_of(RUNS[1], OURS) == "right"
    rows = {line.split("|")[1].strip(): line.split("|")[2:] for line in class_table(RUNS).splitlines()}
    cells = {name: [cell.strip() for cell in row] for name, row in rows.items()}
    # THEN each is counted in those, a class without any is "-", and we are counted in all
    assert cells["CCL-D"][:7] == ["1/1", "-", "-", "0/1 (1 wrong)", "-", "-", "-"]
    assert cells["Greyhound"][:7] == ["-", "-", "-", "1/1", "-", "-", "0/1 (1 wrong)"]
    assert cells["whichrank"][:7] == ["2/2", "-", "-", "2/2", "-", "-", "1/1"]
    # AND so it is by scenario
    by_scenario = methods_table(RUNS)
    assert "| kill | H1 | - | - |" in by_scenario
    assert "| slow-start x2 | S1 | - | - |" in by_scenario
    assert "| **all** |  | 1/2 (1 wrong) | 1/2 (1 wrong) |" in by_scenario


def test_heads_and_picture_say_whose_implementation_it_is() -> None:
    assert OTHERS in class_table(RUNS).splitlines()[0]
    assert OTHERS in methods_table(RUNS).splitlines()[0]
    assert "CCL-D" not in scenario_table(RUNS)
    drawn = picture(RUNS)
    # two methods of others, and the legend
    assert drawn.count(OTHERS) == 3
    assert ">2/2<" in drawn


# ---- again -----------------------------------------------------------------------------------------------------------


def test_what_was_said_before_is_judged_by_what_is_claimed_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kept run of a slow rank 2, in which Greyhound detected it, which counted as unknown, and bisection named 3
    truth = msgspec.to_builtins(truth_of("slow", (2,)))
    said = {
        "greyhound": Outcome("unknown", words=(word(),)),
        "bisection": Outcome("right", words=(word(3),)),
        OURS: Outcome("right", words=(word(2),)),
    }
    planned = plan(chosen(["slow-compute x2"]), 1)
    run = Run("slow-compute x2", "S1", 0, "ddp", "torchrun", "right", False, None, 1.0, said, truth, [])
    kept = tmp_path / "kept" / "slow-compute-x2-0"
    kept.mkdir(parents=True)
    (kept / FILE_NAME).touch()
    monkeypatch.setattr(campaign, "listen", lambda tape, names, limits, watch: {"greyhound": [word(at_s=30.0)]})
    # WHEN methods go through its recording again
    results, reported = tmp_path / "results.jsonl", list[Run]()
    campaign.hear_again(planned, {planned[0].key: run}, ["greyhound"], results, tmp_path / "kept", reported.append)
    # THEN the new words replace the old ones, and those of whom nothing was recorded are judged again
    outcomes = {name: (outcome.verdict, outcome.detected_s) for name, outcome in reported[0].outcomes.items()}
    assert outcomes == {"greyhound": ("right", 20.0), "bisection": ("wrong_name", 10.0), OURS: ("right", 10.0)}
    assert campaign.done_in(results)[planned[0].key].outcomes == reported[0].outcomes
