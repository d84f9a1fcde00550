"""The judge of trials: what is wrong must not pass."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.incident_cases import incident

from whichrank.model.incident import Cause, Culprit, Incident, Link, Reason, Stage
from whichrank.testbed.bench.judge import (
    Ran,
    Verdict,
    agrees,
    is_phase_right,
    is_too_small,
    judge,
    reason_agrees,
)
from whichrank.testbed.demo.faults import CATALOGUE
from whichrank.testbed.demo.plan import Truth
from whichrank.testbed.demo.slow import SLOW

WELL = Ran((0, 1, 2, 3), 0)


def truth(fault: str, **changes: Any) -> Truth:
    """Rank 5 was struck, as the catalogue says of this fault."""
    entry = CATALOGUE[fault]
    fields: dict[str, Any] = {
        "fault": fault, "variant": entry.variants[0].name, "kind": entry.kind, "effect": entry.variants[0].effect,
        "culprits": (5,), "candidates": (5,), "cause": entry.causes[0], "causes": entry.causes,
        "reason": "", "reasons": entry.reasons, "hard": entry.hard, "layout": "tp2-pp2-dp2", "iteration": 9,
        "at_utc": "2026-01-02T03:04:05+00:00", "at_monotonic_ns": 1,
    }  # fmt: skip
    return Truth(**(fields | changes))


def said(cause: Cause = Cause.NOT_ENTERED, ranks: tuple[int, ...] = (5,), **changes: Any) -> Incident:
    """An alert that names these ranks."""
    culprits = tuple(Culprit(rank=r, host="a", pid=1, device="cpu", confidence=0.9, why="so") for r in ranks)
    return incident(cause, culprits=culprits, **changes)


def verdict(fault: str, words: list[Incident], ran: Ran = WELL, seconds: float | None = 1.5, **changes: Any) -> str:
    return judge(CATALOGUE[fault], truth(fault, **changes), words, ran, seconds, 8.0)


def test_right_is_right() -> None:
    assert verdict("stop", [said(severity="notice"), said()]) == "right"


def test_a_wrong_name_in_any_word_is_one_also_if_it_is_withdrawn() -> None:
    assert verdict("stop", [said(ranks=(3,), severity="notice"), said()]) == "wrong_name"


def test_a_candidate_alone_is_a_wrong_name() -> None:
    # GIVEN a cycle of two ranks, of which 7 is at fault
    cycle = {"culprits": (7,), "candidates": (6, 7)}

    # THEN naming the innocent one is wrong, both is not
    assert verdict("wrong-order", [said(Cause.DEADLOCK, (6,))], **cycle) == "wrong_name"
    assert verdict("wrong-order", [said(Cause.DEADLOCK, (6, 7))], **cycle) == "right"


def test_a_half_of_the_culprits_is_not_enough() -> None:
    assert verdict("stop", [said()], culprits=(4, 5), candidates=(4, 5)) == "wrong_name"


def test_several_alerts_for_one_fault_are_no_right_verdict() -> None:
    assert verdict("stop", [said(), said(id="i-2")]) == "several"


@pytest.mark.parametrize(
    ("seconds", "expected"), [(2.9, "right"), (3.1, "late"), (None, "missed"), (-4.0, "false_alarm")]
)
def test_hard_evidence_is_reported_in_time(seconds: float | None, expected: str) -> None:
    assert verdict("stop", [said()], seconds=seconds) == expected
    assert verdict("skip-op", [said(Cause.INCONSISTENT)], seconds=seconds, hard=False, effect="skew") == expected


def test_patience_is_not_late() -> None:
    assert verdict("sleep", [said()], seconds=8.5) == "right"
    assert verdict("sleep", [said()], seconds=13.0) == "late"


def test_no_alert_no_name_and_another_cause_are_told_apart() -> None:
    assert verdict("stop", []) == "missed"
    assert verdict("stop", [said(severity="notice")]) == "missed"
    assert verdict("stop", [said(Cause.UNKNOWN, ())]) == "unknown"
    assert verdict("stop", [said(Cause.TRANSPORT)]) == "wrong_cause"


@pytest.mark.parametrize(
    ("words", "ran", "expected"),
    [
        ([], WELL, "right"),
        ([], Ran((), 0), "no_fault_done"),
        ([], Ran((0, 1), 1), "no_fault_done"),
        ([], Ran((0, 1), None), "no_fault_done"),
        ([said(ranks=(), severity="notice")], WELL, "right"),
        ([said(ranks=())], WELL, "false_alarm"),
        ([said(ranks=(3,), severity="notice")], WELL, "wrong_name"),
    ],
)
def test_a_healthy_job_must_have_run_and_ended_well(words: list[Incident], ran: Ran, expected: str) -> None:
    assert verdict("jitter", words, ran, None, culprits=(), candidates=()) == expected


def test_nothing_done_proves_nothing() -> None:
    assert judge(CATALOGUE["none"], None, [], WELL, None, 8.0) == "no_fault_done"
    assert judge(CATALOGUE["stop"], None, [said()], WELL, 1.0, 8.0) == "no_fault_done"


@pytest.mark.parametrize(
    ("effect", "longer", "at_most", "expected"),
    [
        ("slow", 0.02, None, True),
        ("slow", -0.03, 0.2, True),
        ("slow", 0.06, 0.03, True),
        ("slow", None, 0.03, True),
        ("slow", 0.06, None, False),
        ("slow", 0.06, 0.2, False),
        ("slow", None, None, False),
        ("slow-link", 0.01, None, True),
        ("slow-all", 0.1, None, True),
        ("slow-all", 0.2, 0.5, False),
        ("uneven", 0.0, None, False),
        ("hang", 0.0, None, False),
    ],
)
def test_what_costs_less_than_is_reported_is_too_small(
    effect: str, longer: float | None, at_most: float | None, expected: bool
) -> None:
    assert is_too_small(effect, longer, at_most) is expected


def test_silence_agrees_with_what_is_too_small_and_a_report_does_too() -> None:
    assert [v for v in Verdict.__args__ if agrees(v, too_small=True)] == ["right", "missed", "late"]  # type: ignore[attr-defined]
    assert [v for v in Verdict.__args__ if agrees(v, too_small=False)] == ["right"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("phase", "phases", "right"),
    [
        ("", ["forward"], None),
        ("forward", ["forward", "forward"], True),
        ("forward", ["backward", "forward"], False),
        ("forward", [None], False),
        ("all", [None], True),
        ("all", [None, "backward"], False),
    ],
)
def test_each_phase_that_is_said_must_be_right(phase: str, phases: list[str | None], right: bool | None) -> None:
    words = [said(Cause.COMPUTE_SLOW, stage=Stage(phase=one)) for one in phases]
    assert is_phase_right(truth("stop", phase=phase), words) is right


def test_reasons() -> None:
    # GIVEN a reason to find, one to find and none given, and a fault that has none
    stopped = truth("stop")

    assert reason_agrees(stopped, [said(reason=Reason.STOPPED)]) is True
    assert reason_agrees(stopped, [said(reason=None)]) is False
    assert reason_agrees(stopped, []) is None
    assert reason_agrees(truth("exit"), [said()]) is None


def of_links(links: tuple[tuple[int, int], ...], ranks: tuple[int, ...] = (), **changes: Any) -> Incident:
    """An alert on slow links, and on a rank."""
    reported = tuple(Link(src=src, dst=dst, end="path") for src, dst in links)
    return said(Cause.COMMUNICATION_SLOW, ranks, kind="slow", links=reported, **changes)


@pytest.mark.parametrize(
    ("fault", "words", "expected"),
    [
        ("slow-link", [of_links(((3, 4),))], "right"),
        ("slow-link", [of_links(((3, 4), (2, 5)))], "right"),
        ("slow-link", [of_links(((3, 4),), (3,))], "right"),
        ("slow-link", [of_links(((3, 4), (5, 6)))], "wrong_name"),
        ("slow-link", [of_links(((4, 3),))], "wrong_name"),
        ("slow-link", [of_links(((3, 4),), (4,))], "wrong_name"),
        ("slow-link", [said(Cause.COMPUTE_SLOW, (3,), kind="slow")], "missed"),
        ("slow-link", [], "missed"),
        (
            "slow-link-and-compute",
            [of_links(((3, 4),)), said(Cause.COMPUTE_SLOW, (6,), kind="slow", id="i-2")],
            "right",
        ),
        ("slow-link-and-compute", [of_links(((3, 4),))], "unknown"),
        ("slow-link-and-compute", [said(Cause.COMPUTE_SLOW, (6,), kind="slow")], "missed"),
    ],
)
def test_links_are_judged_by_the_end_that_was_slowed(fault: str, words: list[Incident], expected: str) -> None:
    # GIVEN what ranks 2 and 3 send was limited, and in one of the faults rank 6 computes slowly
    entry = SLOW[fault]
    culprits = (6,) if entry.do else ()
    reported = Truth(
        fault=fault, variant="100mbit", kind="outside", effect="slow-link", culprits=culprits,
        candidates=(2, 3, *culprits), cause=entry.causes[0], causes=entry.causes, reason="", reasons=(), hard=False,
        layout="dp8", iteration=9, at_utc="2026-01-02T03:04:05+00:00", at_monotonic_ns=1, sources=(2, 3),
    )  # fmt: skip
    assert judge(entry, reported, words, WELL, 9.0, 13.0) == expected
