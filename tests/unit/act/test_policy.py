"""When training may be paused without being asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import numpy as np

from whichrank.act.policy import EVERY_S, Policy, to_be_measured
from whichrank.model.incident import Cause, Culprit, Incident, Reason
from whichrank.model.job_now import Group, JobNow

SLOW = Incident(
    id="job-1", job="job", severity="alert", status="open", kind="slow", cause=Cause.COMPUTE_SLOW,
    culprits=(Culprit(rank=3, confidence=0.9, why="computes longer"),), onset=datetime(2026, 1, 1, tzinfo=UTC),
    detected=datetime(2026, 1, 1, tzinfo=UTC),
    complete=True,
)  # fmt: skip


def changed(**fields: object) -> Incident:
    return msgspec.structs.replace(SLOW, **fields)


def test_nothing_is_paused_unless_the_user_says_so() -> None:
    policy = Policy(is_on=False)
    policy.note([SLOW])
    assert policy.take(1e6) is None


def test_alert_that_names_a_rank_is_proved_once() -> None:
    policy = Policy(is_on=True)
    policy.note([SLOW])
    assert policy.wants(0.0)
    assert policy.take(0.0) == SLOW
    policy.note([SLOW])
    assert policy.take(1e6) is None


def test_others_wait_for_their_turn() -> None:
    policy = Policy(is_on=True)
    policy.note([SLOW])
    policy.take(0.0)
    policy.note([changed(id="job-2")])
    assert policy.take(EVERY_S - 1) is None
    assert policy.take(EVERY_S) is not None


def test_what_names_nobody_or_is_over_is_not_proved() -> None:
    policy = Policy(is_on=True)
    policy.note([changed(severity="notice"), changed(cause=Cause.IMBALANCE, culprits=()), changed(kind="hang")])
    assert policy.take(1e6) is None
    policy.note([SLOW])
    policy.note([changed(status="recovered", ended=datetime(2026, 1, 2, tzinfo=UTC))])
    assert policy.take(1e6) is None


def test_longer_iterations_that_nothing_explains_are_looked_into() -> None:
    policy = Policy(is_on=True)
    policy.note([changed(severity="notice", cause=Cause.UNKNOWN, culprits=(), candidates=SLOW.culprits)])
    assert policy.take(1e6) is None
    unexplained = changed(severity="notice", cause=Cause.UNKNOWN, culprits=())
    policy.note([changed(severity="notice", cause=Cause.UNKNOWN, culprits=(), reason=Reason.CPU_CONTENTION)])
    assert policy.take(1e6) is None
    policy.note([unexplained])
    assert policy.take(1e6) == unexplained


def job(ranks: int) -> JobNow:
    groups = tuple(Group(at, "tp", tuple(range(at, at + 8))) for at in range(0, ranks, 8))
    return JobNow(tuple(range(ranks)), dict.fromkeys(range(ranks), "a"), groups, 0.1, None)


def test_of_a_large_job_those_are_measured_that_share_a_communicator() -> None:
    assert to_be_measured(SLOW, job(16)) == tuple(range(16))
    assert to_be_measured(SLOW, job(1024)) == tuple(range(8))
    assert np.isin(3, to_be_measured(SLOW, job(1024)))


def test_of_a_large_job_in_which_nobody_is_named_those_are_measured_whose_communicators_take_longer() -> None:
    # GIVEN iterations that take longer, and nothing explains it
    unexplained = changed(severity="notice", cause=Cause.UNKNOWN, culprits=())
    large = job(1024)
    # WHEN no communicator takes longer than comparable ones THEN all ranks are measured
    assert to_be_measured(unexplained, large) == large.ranks
    # WHEN some do THEN their members are, but for one that is too large and one of which a rank has ended
    groups = (tuple(range(40, 48)), tuple(range(512)), (3, 1024), (80, 81))
    assert to_be_measured(unexplained, replace(large, long_groups=groups)) == (*range(40, 48), 80, 81)
    # WHEN groups overlap THEN it does not go from group to group
    data = tuple(Group(2000 + at, "dp", tuple(range(at, 1024, 8))) for at in range(8))
    overlapping = replace(large, groups=(*large.groups, *data), long_groups=((80, 592),))
    assert len(to_be_measured(unexplained, overlapping)) <= 8 + 8 + 128
    # WHEN there are too few of them to hold one against others THEN those that share a communicator are measured too
    assert to_be_measured(unexplained, replace(large, long_groups=((80, 81),))) == tuple(range(80, 88))
