"""When a hang is worth a word and when an alarm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whichrank.config import AnalyzerConfig
from whichrank.detect.hang import Persistence, Thresholds, Urgency, is_barrier, suspicious_s, urgency_of
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Link
from whichrank.model.kinds import Kind

NOW_S = 5000.0
LIMITS = AnalyzerConfig()
OP = {"kind": int(Kind.ALL_REDUCE), "counter": 7, "dtype": 6, "count": 1024, "reduce_op": 0, "peer": -1}
BARRIER = OP | {"kind": int(Kind.BARRIER)}


def finding(
    waited_s: float, *, hard: bool = False, op: dict[str, int] | None = None, names: tuple[int, ...] = (3,)
) -> Finding:
    return Finding(
        Cause.NOT_ENTERED, culprits=tuple(Blame(r, 0.9, ()) for r in names), comm=0, op=OP if op is None else op,
        onset_s=NOW_S - waited_s, hard=hard,
    )  # fmt: skip


def facts(
    *, busy: bool = False, busy_s: float = 0.0, phase: bool = False, phase_s: float = 0.0, op_timeout_s: float = 0.0
) -> Thresholds:
    return {"busy": busy, "busy_s": busy_s, "phase": phase, "phase_s": phase_s, "op_timeout_s": op_timeout_s}


def urgency(
    found: Finding, reported: Thresholds | None = None, iteration_s: float = 0.1, polls: int = 2, seen_s: float = 5.0
) -> Urgency:
    snapshot = Persistence((), NOW_S - seen_s, polls)
    return urgency_of(snapshot, found, reported or facts(), LIMITS, iteration_s, NOW_S)


@pytest.mark.parametrize(
    ("waited_s", "iteration_s", "expected"),
    [
        (9.9, 0.1, Urgency.NONE),
        (10.0, 0.1, Urgency.NOTICE),
        (19.0, 10.0, Urgency.NONE),
        (20.0, 10.0, Urgency.NOTICE),
        (299.0, 0.1, Urgency.NOTICE),
        (300.0, 0.1, Urgency.ALERT),
    ],
)
def test_without_hard_evidence_patience_decides(waited_s: float, iteration_s: float, expected: Urgency) -> None:
    assert urgency(finding(waited_s), iteration_s=iteration_s) is expected


def test_a_notice_names_somebody() -> None:
    assert urgency(finding(50, names=())) is Urgency.NONE
    assert urgency(finding(301, names=())) is Urgency.ALERT


@pytest.mark.parametrize(
    ("polls", "seen_s", "expected"), [(1, 5.0, Urgency.NONE), (2, 0.5, Urgency.NONE), (2, 0.6, Urgency.ALERT)]
)
def test_hard_evidence_needs_two_snapshots_and_a_moment(polls: int, seen_s: float, expected: Urgency) -> None:
    assert urgency(finding(1.0, hard=True), polls=polls, seen_s=seen_s) is expected


@pytest.mark.parametrize("waited_s", [10.0, 300.0])
def test_one_snapshot_is_no_word(waited_s: float) -> None:
    assert urgency(finding(waited_s), polls=1) is Urgency.NONE


@pytest.mark.parametrize("reported", [facts(busy=True), facts()])
@pytest.mark.parametrize(("waited_s", "expected"), [(899.0, Urgency.NOTICE), (900.0, Urgency.ALERT)])
def test_a_busy_culprit_or_a_barrier_has_three_times_the_time(
    reported: Thresholds, waited_s: float, expected: Urgency
) -> None:
    op = OP if reported["busy"] else BARRIER
    assert urgency(finding(waited_s, op=op), reported) is expected


@pytest.mark.parametrize(("waited_s", "expected"), [(499.0, Urgency.NOTICE), (500.0, Urgency.ALERT)])
def test_the_time_in_which_it_was_busy_counts_a_third_when_it_is_done(waited_s: float, expected: Urgency) -> None:
    assert urgency(finding(waited_s), facts(busy_s=300.0)) is expected
    # AND not less than it would while it is busy
    assert urgency(finding(waited_s), facts(busy=True, busy_s=300.0)) is Urgency.NOTICE


@pytest.mark.parametrize(
    ("waited_s", "expected"), [(404.0, Urgency.NONE), (699.0, Urgency.NOTICE), (700.0, Urgency.ALERT)]
)
def test_the_time_in_a_phase_that_is_over_does_not_count(waited_s: float, expected: Urgency) -> None:
    assert urgency(finding(waited_s), facts(phase_s=400.0)) is expected
    # AND the operation's own timeout stands, since the library knows of no phase
    assert urgency(finding(waited_s), facts(phase_s=400.0, op_timeout_s=500.0)) is Urgency.ALERT


def test_busy_and_barrier_together_are_not_nine_times() -> None:
    assert urgency(finding(900, op=BARRIER), facts(busy=True)) is Urgency.ALERT


def test_a_marked_phase_never_alarms_by_time() -> None:
    assert urgency(finding(5000), facts(phase=True)) is Urgency.NONE
    # BUT a dead rank is one all the same
    assert urgency(finding(1, hard=True), facts(phase=True)) is Urgency.ALERT


@pytest.mark.parametrize(
    ("waited_s", "timeout_s", "reported", "expected"),
    [
        (47.9, 60.0, {}, Urgency.NOTICE),
        (48.0, 60.0, {}, Urgency.ALERT),
        (48.0, 60.0, {"busy": True}, Urgency.ALERT),
        (300.0, 1800.0, {}, Urgency.ALERT),
    ],
)
def test_the_verdict_comes_before_the_operation_times_out(
    waited_s: float, timeout_s: float, reported: dict[str, bool], expected: Urgency
) -> None:
    assert urgency(finding(waited_s), facts(op_timeout_s=timeout_s, **reported)) is expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (BARRIER, True),
        (OP | {"kind": int(Kind.MONITORED_BARRIER)}, True),
        (OP | {"dtype": 0, "count": 3}, True),
        (OP | {"dtype": 6, "count": 1}, False),
        (OP | {"dtype": 99, "count": 1}, False),
        (OP | {"kind": int(Kind.BROADCAST), "dtype": 0, "count": 1}, False),
        (None, False),
    ],
)
def test_what_serves_as_a_barrier(op: dict[str, int] | None, expected: bool) -> None:
    assert is_barrier(op) is expected


def test_a_snapshot_counts_as_long_as_the_same_is_seen() -> None:
    first = Persistence.after(None, finding(1), 10.0)
    second = Persistence.after(first, finding(2), 11.0)
    assert (second.polls, second.since_s) == (2, 10.0)
    # Many operations may wait for one rank, and another be the oldest each time
    assert Persistence.after(second, finding(2, op=OP | {"counter": 8}), 12.0).polls == 3
    # BUT another rank, or another operation where nobody is named, is another finding
    for other in (finding(2, names=(4,)), finding(2, names=(3, 4))):
        assert Persistence.after(second, other, 12.0).polls == 1
    path = replace(finding(1, names=()), links=(Link(src=2, dst=4),))
    other_wait = replace(path, comm=1, op=OP | {"counter": 8})
    assert Persistence.after(Persistence.after(None, path, 10.0), other_wait, 11.0).polls == 2
    nobody = Persistence.after(None, finding(1, names=()), 10.0)
    assert Persistence.after(nobody, finding(2, names=(), op=OP | {"counter": 8}), 12.0).polls == 1


@pytest.mark.parametrize(
    ("usual_s", "expected_s"),
    [(0.0, 2.0), (0.1, 2.0), (1.0, 3.0), (30.0, 10.0)],
    ids=["new", "quick", "slow", "capped"],
)
def test_suspicion_waits_for_what_is_unusual_but_not_longer_than_a_notice(usual_s: float, expected_s: float) -> None:
    assert suspicious_s(AnalyzerConfig(), usual_s) == expected_s
