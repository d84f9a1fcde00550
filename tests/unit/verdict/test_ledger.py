"""The life of incidents when faults come on top of each other, or are no faults to the program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batches import T0, WORLD, Node, S, analyzer, comm_info, hung, last_of, records, watch

from whichrank.analyzer import Analyzer
from whichrank.model.clause import Says, clause
from whichrank.model.codes import Status
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Incident, Link, Reason, Severity
from whichrank.model.rows import RECORD
from whichrank.model.telemetry import Event, ProcessState, WaitChannel

NOW_S = T0 / S
AWAITED = (clause(Says.AWAITED),)


def test_a_fault_on_top_of_a_notice_is_an_incident_of_its_own() -> None:
    # GIVEN a notice of rank 2, for which the others wait; then rank 0 is stopped where it waits
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=8.0)
    n.is_(0, ProcessState.STOPPED)
    said += watch(a, n, first_s=8.5, last_s=11.0)
    assert last_of(said) == {"job-1": ("notice", "open", (2,)), "job-2": ("alert", "open", (0,))}
    # WHEN rank 0 goes on, while rank 2 is late still THEN its incident is over, and the first one goes on
    n.is_(0, ProcessState.SLEEPING)
    said = watch(a, n, first_s=11.5, last_s=25.0)
    assert last_of(said) == {"job-1": ("alert", "open", (2,)), "job-2": ("alert", "recovered", (0,))}
    # WHEN all go on
    for rank in range(4):
        n.moves_on(rank).did(rank, 7, 12)
    assert last_of(watch(a, n, first_s=25.5, last_s=28.0)) == {"job-1": ("alert", "recovered", (2,))}


def test_another_rank_that_holds_up_the_same_wait_has_its_own_time() -> None:
    # GIVEN a notice of rank 2, for which rank 3 waits elsewhere; then it comes, and rank 3 does its own part
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=8.0)
    n.waits(2, 7, 9, since_s=8.1).moves_on(3).did(3, 7, 8)
    said += watch(a, n, first_s=8.5, last_s=12.0)
    assert last_of(said) == {"job-1": ("notice", "recovered", (2,))}
    # WHEN that takes long too
    said += watch(a, n, first_s=12.5, last_s=15.0)
    assert last_of(said) == {"job-1": ("notice", "recovered", (2,)), "job-2": ("notice", "open", (3,))}


def test_a_job_that_hangs_and_is_killed_host_by_host_names_no_other_rank() -> None:
    # GIVEN an alert of rank 3, and a user who ends the job on one host after the other
    a, n, b = analyzer(), Node("a:1", [0, 1], 4).comm(WORLD), Node("b:1", [2, 3], 4).comm(WORLD)
    for rank in (0, 1):
        n.waits(rank, 7, 9, since_s=1.0)
    b.waits(2, 7, 9, since_s=1.0).did(3, 7, 8)
    said = watch(a, n, b, first_s=1.5, last_s=24)
    for host, ranks, at_s in ((n, (0, 1), 24.3), (b, (2, 3), 27.3)):
        for rank in ranks:
            host.is_(rank, ProcessState.GONE, ended_ns=host.ns(at_s))
        exits = [Event("exit", rank, 100 + rank, host.ns(at_s), status=9) for rank in ranks]
        a.feed(host.batch(at_s + 0.2, events=exits), NOW_S + at_s + 0.2)
        said += watch(a, n, b, first_s=at_s + 0.3, last_s=at_s + 2.7)
    said += a.finish(NOW_S + 32)
    # THEN the incident stays what it was
    assert last_of(said) == {"job-1": ("alert", "final", (3,))}
    assert {i.cause for i in said} == {Cause.NOT_ENTERED}


def test_a_rank_that_is_late_after_another_is_an_incident_of_its_own() -> None:
    # GIVEN a notice of rank 2, which then goes on; in the next round rank 3 is the one that does not come
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=8.0)
    for rank in (0, 1, 2):
        n.waits(rank, 7, 10, since_s=8.2)
    n.moves_on(3).did(3, 7, 9)
    said += watch(a, n, first_s=8.5, last_s=15.0)
    assert last_of(said) == {"job-1": ("notice", "recovered", (2,)), "job-2": ("notice", "open", (3,))}


def pipeline() -> Node:
    """Rank 0 sends nothing, 1 waits for it, 2 for 1, 3 for 2."""
    n = Node("a:1", [0, 1, 2, 3], 4).comm(*[comm_info(10 + r, [r, r + 1], "pp") for r in range(3)])
    for rank in (1, 2, 3):
        n.did(rank - 1, 9 + rank, 8).waits(rank, 9 + rank, 9, since_s=1.0)
    return n.did(0, 10, 8)


def test_the_next_link_of_a_chain_is_not_blamed_for_the_whole_wait() -> None:
    # GIVEN a pipeline whose alert names rank 0
    a, n = analyzer(), pipeline()
    said = watch(a, n, first_s=1.5, last_s=23.0)
    assert last_of(said) == {"job-1": ("alert", "open", (0,))}
    # WHEN it comes at last, and each of the others needs 4 s for its part
    for rank, at_s in ((0, 23.5), (1, 27.5), (2, 31.5)):
        n.did(rank, 10 + rank, 9).moves_on(rank + 1).did(rank + 1, 10 + rank, 9)
        said += watch(a, n, first_s=at_s, last_s=at_s + 3.5)
    # THEN nobody else is named
    assert last_of(said) == {"job-1": ("alert", "recovered", (0,))}


def test_the_next_link_of_a_chain_is_named_if_it_does_not_come_either() -> None:
    a, n = analyzer(), pipeline()
    said = watch(a, n, first_s=1.5, last_s=23.0)
    n.computing.add(0)
    n.did(0, 10, 9).moves_on(1).did(1, 10, 9)
    said += watch(a, n, first_s=23.5, last_s=45.0)
    assert last_of(said) == {"job-1": ("alert", "recovered", (0,)), "job-2": ("alert", "open", (1,))}


@pytest.mark.parametrize(
    ("status", "came", "reported"),
    [
        *((11, False, True), (9, False, False), (6, False, False), (1 << 8, False, False)),
        *((11, True, True), (9, True, True), (1 << 8, True, True)),
    ],
)
def test_a_rank_that_dies_on_top_of_an_alert_is_reported_if_it_died_of_itself(
    status: int, came: bool, reported: bool
) -> None:
    # GIVEN rank 1 is stopped, and maybe goes on; then rank 2, which waited for it, crashes, is killed, aborts, or exits
    a, n = analyzer(), hung(1)
    n.is_(1, ProcessState.STOPPED)
    said = watch(a, n, first_s=1.5, last_s=5.0)
    assert last_of(said) == {"job-1": ("alert", "open", (1,))}
    if came:
        n.is_(1, ProcessState.SLEEPING).did(1, 7, 9, 8)
    n.is_(2, ProcessState.GONE, ended_ns=n.ns(5.2))
    a.feed(n.batch(5.4, events=[Event("exit", 2, 102, n.ns(5.2), status=status)]), NOW_S + 5.4)
    said += watch(a, n, first_s=5.5, last_s=9.0)
    # THEN the death is reported only if nothing else can have led to it
    expected = {"job-1": ("alert", "open", (1,))} | ({"job-2": ("alert", "open", (2,))} if reported else {})
    assert last_of(said) == expected


def test_a_victim_that_crashes_when_the_hung_job_is_ended_is_no_incident() -> None:
    # GIVEN an alert of rank 1; the launcher ends the job, and rank 2 crashes in its teardown
    a, n = analyzer(), hung(1)
    said = watch(a, n, first_s=1.5, last_s=23.0)
    for rank in (0, 1, 3):
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(23.2))
    n.is_(2, ProcessState.GONE, ended_ns=n.ns(23.3))
    exits = [Event("exit", rank, 100 + rank, n.ns(23.2), status=11 if rank == 2 else 15) for rank in range(4)]
    a.feed(n.batch(23.4, events=exits), NOW_S + 23.4)
    said += watch(a, n, first_s=23.5, last_s=27.0) + a.finish(NOW_S + 28.0)
    assert last_of(said) == {"job-1": ("alert", "final", (1,))}


def test_a_deadlock_is_not_overwritten_by_a_rank_that_is_stopped_later() -> None:
    # GIVEN ranks 0 and 1 wait for each other in two groups
    one, two = comm_info(8, [0, 1], "mesh_tp"), comm_info(9, [0, 1], "mesh_dp")
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(one, two, comm_info(10, [2, 3], "mesh_pp"))
    n.waits(0, 8, 5, since_s=1.0).did(0, 9, 4).waits(1, 9, 5, since_s=1.0).did(1, 8, 4)
    said = watch(a, n, first_s=1.5, last_s=5.0)
    first = last_of(said)
    assert [severity for severity, *_ in first.values()] == ["alert"]
    # WHEN rank 3 is stopped elsewhere THEN that is another incident
    n.did(3, 10, 4).is_(3, ProcessState.STOPPED).waits(2, 10, 5, since_s=5.2)
    said += watch(a, n, first_s=5.5, last_s=9.0)
    assert last_of(said) == first | {"job-2": ("alert", "open", (3,))}


def test_a_deadlock_is_not_overwritten_by_a_rank_that_is_late_elsewhere_or_by_who_ends_it() -> None:
    one, two = comm_info(8, [0, 1], "mesh_tp"), comm_info(9, [0, 1], "mesh_dp")
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(one, two, comm_info(10, [2, 3], "mesh_pp"))
    n.waits(0, 8, 5, since_s=1.0).did(0, 9, 4).waits(1, 9, 5, since_s=1.0).did(1, 8, 4)
    first = last_of(watch(a, n, first_s=1.5, last_s=5.0))
    n.did(3, 10, 4).waits(2, 10, 5, since_s=5.2)
    said = watch(a, n, first_s=5.5, last_s=13.0)
    assert last_of(said) == {"job-2": ("notice", "open", (3,))} | {
        i: word for i, word in first.items() if i in last_of(said)
    }
    # WHEN somebody kills one of them
    n.moves_on(2).did(2, 10, 5).did(3, 10, 5).is_(1, ProcessState.GONE, ended_ns=n.ns(13.2))
    a.feed(n.batch(13.4, events=[Event("exit", 1, 101, n.ns(13.2), status=9)]), NOW_S + 13.4)
    said = watch(a, n, first_s=13.5, last_s=16.0)
    assert not any(c.rank == 1 for i in said for c in i.culprits)


def test_a_stopped_rank_on_top_of_an_alert_is_an_incident_of_its_own() -> None:
    # GIVEN an alert of rank 2, which sleeps; then rank 0 is stopped, and goes on
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=23.0)
    n.is_(0, ProcessState.STOPPED)
    said += watch(a, n, first_s=23.5, last_s=27.0)
    assert last_of(said) == {"job-1": ("alert", "open", (2,)), "job-2": ("alert", "open", (0,))}
    n.is_(0, ProcessState.SLEEPING)
    assert last_of(watch(a, n, first_s=27.5, last_s=32.0)) == {"job-2": ("alert", "recovered", (0,))}
    # THEN rank 2 is still reported, and its end is
    for rank in range(4):
        n.moves_on(rank).did(rank, 7, 12)
    assert last_of(watch(a, n, first_s=32.5, last_s=35.0)) == {"job-1": ("alert", "recovered", (2,))}


def test_ranks_that_are_stopped_one_after_the_other_are_reported_as_they_come() -> None:
    a, n = analyzer(), hung(2)
    n.is_(2, ProcessState.STOPPED)
    said = watch(a, n, first_s=1.5, last_s=4.0)
    n.is_(0, ProcessState.STOPPED)
    said += watch(a, n, first_s=4.5, last_s=7.0)
    assert last_of(said) == {"job-1": ("alert", "open", (2,)), "job-2": ("alert", "open", (0,))}
    # WHEN the first goes on, which now waits for the other THEN only its own incident is over
    n.is_(2, ProcessState.SLEEPING).waits(2, 7, 9, since_s=7.2)
    said += watch(a, n, first_s=7.5, last_s=12.0)
    n.is_(0, ProcessState.SLEEPING)
    for rank in range(4):
        n.moves_on(rank).did(rank, 7, 12)
    said += watch(a, n, first_s=12.5, last_s=15.0)
    assert last_of(said) == {"job-1": ("alert", "recovered", (2,)), "job-2": ("alert", "recovered", (0,))}


def test_ranks_that_are_stopped_together_are_one_incident() -> None:
    a, n = analyzer(), hung(2)
    n.is_(2, ProcessState.STOPPED).is_(0, ProcessState.STOPPED)
    assert last_of(watch(a, n, first_s=1.5, last_s=9.0)) == {"job-1": ("alert", "open", (0, 2))}


def test_whoever_is_left_when_most_have_ended_in_order_may_have_issued_too_much() -> None:
    # GIVEN rank 1 waits in a round that the others, which have all ended in order, never issue
    a, n = analyzer(), hung(0, 2, 3)
    for rank in (0, 2, 3):
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(1.2), closed_ns=n.ns(1.1))
    exits = [Event("exit", rank, 100 + rank, n.ns(1.2), status=0) for rank in (0, 2, 3)]
    a.feed(n.batch(1.4, events=exits), NOW_S + 1.4)
    said = watch(a, n, first_s=1.5, last_s=6.0)
    # THEN nobody is named, also not when its operation then fails
    n.moves_on(1).is_(1, ProcessState.SLEEPING, first_failure_ns=n.ns(6.2), failure=b"Connection closed by peer")
    failed = records(1, 7, 9, 1, status=Status.FAILED, t_issue_ns=n.ns(1.0), t_end_ns=n.ns(6.2))
    a.feed(n.batch(6.5, failed), NOW_S + 6.5)
    said += watch(a, n, first_s=7.0, last_s=9.0) + a.finish(NOW_S + 10.0)
    assert said
    assert not any(i.culprits for i in said)
    assert {c.rank for c in said[-1].candidates} == {0, 1, 2, 3}


def failing(exception: bytes = b"") -> list[Incident]:
    """Rank 2 does not come, and the operation of the others runs into its timeout after three seconds."""
    a, n = analyzer(), hung(2)
    watch(a, n, first_s=1.5, last_s=3.5)
    for rank in (0, 1, 3):
        n.moves_on(rank).did(rank, 7, 9)
        n.is_(rank, ProcessState.SLEEPING, first_failure_ns=n.ns(4.0), failure=b"Timed out waiting 3000ms")
        if exception:
            n.is_(rank, ProcessState.SLEEPING, exception_ns=n.ns(4.1), exception=exception)
    said = watch(a, n, first_s=4.5, last_s=7.0)
    for rank in range(4):
        n.did(rank, 7, 12)
    return said + watch(a, n, first_s=7.5, last_s=80.0, every_s=1.0)


def test_a_timeout_that_the_program_deals_with_is_no_alarm() -> None:
    assert last_of(failing()) == {"job-1": ("notice", "recovered", (2,))}


@pytest.mark.parametrize(("status", "named"), [(1 << 8, 2), (9, 0)])
def test_a_rank_that_was_blocked_does_not_end_by_itself(status: int, named: int) -> None:
    # GIVEN rank 2 does not come; rank 0, which waits, exits before the sensor has seen its operation fail
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=8.0)
    n.is_(0, ProcessState.GONE, ended_ns=n.ns(8.2))
    a.feed(n.batch(8.4, events=[Event("exit", 0, 100, n.ns(8.2), status=status)]), NOW_S + 8.4)
    for rank in (1, 3):
        n.moves_on(rank).is_(rank, ProcessState.SLEEPING, first_failure_ns=n.ns(8.25), failure=b"Timed out waiting")
    said += watch(a, n, first_s=8.5, last_s=12.0)
    # THEN it is a victim still, unless it was killed
    assert last_of(said)[said[-1].id] == ("alert", "open", (named,))


def test_a_notice_ends_when_its_rank_has_come_though_others_keep_waiting() -> None:
    # GIVEN a notice of rank 1; then a healthy job in which somebody always waits for a second or two
    a, n = analyzer(), hung(1)
    said = watch(a, n, first_s=1.5, last_s=8.0)
    for step in range(20):
        for rank in range(4):
            n.moves_on(rank).did(rank, 7, 9 + step)
        for rank in {0, 1, 2, 3} - {step % 3 + 1}:
            n.waits(rank, 7, 10 + step, since_s=8.2 + 1.5 * step)
        said += watch(a, n, first_s=8.5 + 1.5 * step, last_s=9.5 + 1.5 * step)
    assert last_of(said) == {"job-1": ("notice", "recovered", (1,))}


def test_nobody_waits_while_all_are_stopped() -> None:
    # GIVEN all ranks are stopped for longer than the hang timeout, while rank 2 computes; it comes two seconds after
    a, n = analyzer(), hung(2)
    n.computing = {2}
    watch(a, n, first_s=1.5, last_s=2.0)
    for rank in range(4):
        n.is_(rank, ProcessState.STOPPED)
    watch(a, n, first_s=2.5, last_s=40.0)
    for rank in range(4):
        n.is_(rank, ProcessState.SLEEPING)
    said = watch(a, n, first_s=40.5, last_s=43.0)
    assert {i.severity for i in said} <= {"notice"}


def test_a_timeout_that_ends_a_rank_is_one() -> None:
    said = failing(b"RuntimeError: Timed out waiting 3000ms at train.py:3")
    assert last_of(said)["job-1"][::2] == ("alert", (2,))


SLEEPS = ["step (/home/me/train.py:12)", "<module> (/home/me/train.py:90)"]
LOCKS = ["locked (/home/me/train.py:31)", "<module> (/home/me/train.py:90)"]
RENDEZVOUS = ["new_group (/x/site-packages/torch/distributed/distributed_c10d.py:5)", *LOCKS]


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (SLEEPS, RENDEZVOUS, {1}),
        (SLEEPS, LOCKS, set()),
        (SLEEPS, SLEEPS, set()),
        (RENDEZVOUS, RENDEZVOUS, set()),
    ],
)
def test_of_several_late_ranks_one_is_named_if_the_rest_waits_in_the_rendezvous(
    first: list[str], second: list[str], named: set[int]
) -> None:
    # GIVEN ranks 0 and 3 wait in a round for ranks 1 and 2, which are outside of c10d
    a, n = analyzer(), hung(1, 2)
    n.stacks |= {1: first, 2: second}
    said = watch(a, n, first_s=1.5, last_s=23.0)
    # THEN all are candidates if it cannot be reported which of them is late by itself
    assert said[-1].severity == "alert"
    assert {c.rank for c in said[-1].culprits} == named
    assert {c.rank for c in said[-1].candidates} == (set() if named else {1, 2})
    assert (said[-1].cause == Cause.UNKNOWN) == (not named)
    assert {i.id for i in said} == {"job-1"}
    assert all({c.rank for c in i.culprits} <= (named or set()) for i in said)


@pytest.mark.parametrize(("other", "named"), [("stopped", ()), ("asleep", ()), ("computes", (1,))])
def test_one_late_rank_is_not_named_while_another_is_in_no_operation_at_all(other: str, named: tuple[int, ...]) -> None:
    # GIVEN ranks 0 and 1 are a group, in which rank 0 waits for rank 1; rank 2 is in no operation, rank 3 computes
    a, pair = analyzer(), comm_info(8, [0, 1], "pair")
    n = Node("a:1", [0, 1, 2, 3], 4).comm(WORLD, pair)
    for rank in range(4):
        n.did(rank, 7, 8)
    n.waits(0, 8, 3, since_s=1.0).did(1, 8, 2)
    n.computing = {3, 2} if other == "computes" else {3}
    n.is_(2, ProcessState.STOPPED if other == "stopped" else ProcessState.SLEEPING)
    said = watch(a, n, first_s=0.5, last_s=8.0)
    # THEN rank 1 may wait for rank 2, unless that computes
    assert tuple(c.rank for c in said[-1].culprits) == named
    assert {c.rank for c in said[-1].candidates} == (set() if named else {1, 2})


def test_one_late_rank_is_named_wherever_it_waits() -> None:
    a, n = analyzer(), hung(1)
    n.is_(1, ProcessState.SLEEPING, main_wait_channel=WaitChannel.IO)
    n.stacks[1] = LOCKS
    said = watch(a, n, first_s=1.5, last_s=23.0)
    assert last_of(said) == {"job-1": ("alert", "open", (1,))}
    assert "waits for something that is no operation" in said[-1].culprits[0].why


@pytest.mark.parametrize("late", [(2,), (2, 3)])
def test_ranks_in_a_marked_phase_never_alert_by_time(late: tuple[int, ...]) -> None:
    a, n = analyzer(), hung(*late)
    for rank in late:
        n.is_(rank, ProcessState.SLEEPING, phase=b"checkpoint")
    assert not watch(a, n, first_s=1.5, last_s=30.0)


def test_a_wait_that_is_seen_on_and_off_makes_no_new_incidents() -> None:
    # GIVEN ranks 0 and 1 wait for rank 2, which waits for rank 3 in a way that is seen half of the time
    three, pair = comm_info(9, [0, 1, 2], "three"), comm_info(8, [2, 3], "pair")
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(three, pair)
    n.waits(0, 9, 9, since_s=1.0).waits(1, 9, 9, since_s=1.0).did(2, 9, 8).did(3, 8, 4)
    n.computing = {3}
    said: list[Incident] = []
    for snapshot in range(80):
        n.waits(2, 8, 5, since_s=1.0) if snapshot // 4 % 2 else n.moves_on(2)
        said += watch(a, n, first_s=1.5 + snapshot / 2, last_s=1.5 + snapshot / 2)
    assert len({i.id for i in said}) <= 1
    assert len(said) < 5


def test_a_stopped_victim_does_not_overwrite_an_alert_without_a_name() -> None:
    a, n = analyzer(), hung(1, 2)
    said = watch(a, n, first_s=1.5, last_s=23.0)
    n.is_(0, ProcessState.STOPPED)
    said += watch(a, n, first_s=23.5, last_s=26.0)
    n.is_(0, ProcessState.SLEEPING)
    said += watch(a, n, first_s=26.5, last_s=30.0)
    assert last_of(said) == {"job-1": ("alert", "open", ()), "job-2": ("alert", "recovered", (0,))}


def test_a_stack_from_before_the_wait_says_nothing() -> None:
    # GIVEN rank 2 was seen in the rendezvous long ago
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    n.stacks[2] = RENDEZVOUS
    watch(a, n, first_s=0.5, last_s=1.0)
    n.stacks.clear()
    for rank in (0, 3):
        n.waits(rank, 7, 9, since_s=60.0)
    said = watch(a, n, first_s=61.0, last_s=82.0)
    assert said
    assert not any(i.culprits for i in said)


def test_a_dead_rank_is_named_beside_the_notice_of_another() -> None:
    # GIVEN a notice of rank 2; then rank 0 is killed, and the launcher ends the rest
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=8.0)
    n.is_(0, ProcessState.GONE, ended_ns=n.ns(8.2))
    a.feed(n.batch(8.4, events=[Event("exit", 0, 100, n.ns(8.2), status=9)]), NOW_S + 8.4)
    said += [i for at in range(10) for i in a.tick(NOW_S + 8.5 + at / 4)] + a.finish(NOW_S + 12.0)
    assert last_of(said) == {"job-1": ("notice", "final", (2,)), "job-2": ("alert", "final", (0,))}


@pytest.mark.parametrize(("desc", "role", "sure"), [("mesh_tp", "tp", 1.0), ("default_pg", "world", 0.5)])
def test_a_role_says_whether_the_description_reported_it(desc: str, role: str, sure: float) -> None:
    # GIVEN a group that is described, or not
    node = Node("a:1", [0, 1, 2, 3], 4).comm(comm_info(7, [0, 1, 2, 3], desc)).did(2, 7, 8)
    for rank in (0, 1, 3):
        node.waits(rank, 7, 9, since_s=1.0)

    reported = watch(analyzer(), node, first_s=1.0, last_s=24.0)[-1].communicator

    assert reported is not None
    assert (reported.role, reported.role_confidence) == (role, sure)


def test_a_contradiction_that_names_nobody_is_no_news_after_the_skew_that_led_to_it() -> None:
    # GIVEN rank 3 was told to have left an operation out
    a = analyzer()
    a.feed(hung().batch(1.0), NOW_S + 1.0)
    ledger = a.ledger
    skew = Finding(cause=Cause.INCONSISTENT, kind="failed", fault_class="H2", culprits=(Blame(3, 0.9, AWAITED),))
    assert [c.rank for c in ledger.add_closed(skew, NOW_S)[0].culprits] == [3]
    # WHEN it then enters another operation than its peer, and that alone does not say which of the two is wrong
    either = tuple(Blame(r, 0.5, (clause(Says.ISSUED, op=f"all_reduce of {r}"),)) for r in (2, 3))
    nobody = Finding(cause=Cause.UNKNOWN, kind="failed", fault_class="H2", candidates=either, hard=True)
    # THEN nothing is added, but of other ranks it is reported
    assert ledger.report(nobody, "alert", NOW_S + 1) == []
    others = tuple(replace(blame, rank=blame.rank - 2) for blame in either)
    assert len(ledger.report(replace(nobody, candidates=others), "alert", NOW_S + 1)) == 1


def test_what_stands_beside_all_others_is_reported_again_only_where_there_is_more_to_say() -> None:
    # GIVEN a slow link that is reported
    a = analyzer()
    a.feed(Node("a:1", list(range(10)), 10).batch(0.0), NOW_S)

    def said(
        severity: Severity = "alert", ranks: tuple[int, ...] = (), links: tuple[int, ...] = (), **more: Reason
    ) -> list[Incident]:
        blames = tuple(Blame(rank, 0.9, AWAITED) for rank in ranks)
        paths = tuple(Link(src=src, dst=9) for src in links)
        finding = Finding(
            cause=Cause.COMMUNICATION_SLOW, kind="slow", culprits=blames, links=paths, onset_s=1.0, **more
        )
        return a.ledger.keep("links", finding, severity, NOW_S, 20.0)

    (first,) = said("notice", (4,), (4,))
    assert said("notice", (4,), (4,)) == said("notice", (), (4,)) == []
    # WHEN it is worth more, or there is a reason, a rank or a link besides THEN the same incident says so
    reported = [*said("alert", (4,), (4,)), *said("alert", (4,), (4, 6)), *said("alert", (6,), (6,))]
    reported += said("alert", (6,), (6,), reason=Reason.CPU_LIMIT)
    assert {i.id for i in reported} == {first.id}
    assert [(i.severity, [c.rank for c in i.culprits], len(i.links), i.reason) for i in reported] == [
        ("alert", [4], 1, None), ("alert", [4], 2, None), ("alert", [6], 2, None), ("alert", [6], 2, "cpu_limit"),
    ]  # fmt: skip
    assert {link.scope for i in reported for link in i.links} == {"intra_node"}
    # AND what changes from look to look is not reported again and again
    assert said("alert", (6,), (6,), reason=Reason.CPU_LIMIT) == said("notice", (), ()) == said("alert", (), (4,)) == []
    assert said("alert", (), tuple(range(10, 200)))
    assert said("alert", (), tuple(range(50, 200))) == []


def test_a_link_says_whether_it_leaves_a_node() -> None:
    # GIVEN two ranks on each of two nodes, and a rank of which nothing has been heard
    a = analyzer()
    for agent, ranks in (("a:1", [0, 1]), ("b:1", [2, 3])):
        a.feed(Node(agent, ranks, 5).batch(0.0), NOW_S)
    paths = tuple(Link(src=src, dst=dst) for src, dst in ((0, 1), (1, 2), (3, 4)))
    # WHEN slow links are reported THEN each says which kind it is
    finding = Finding(cause=Cause.COMMUNICATION_SLOW, kind="slow", links=paths, onset_s=1.0)
    (incident,) = a.ledger.keep("links", finding, "alert", NOW_S, 20.0)
    assert [link.scope for link in incident.links] == ["intra_node", "inter_node", None]


def test_a_candidate_is_never_certain() -> None:
    # GIVEN one candidate, and nothing that tells it from a culprit but proof
    ledger = analyzer_with_world().ledger
    finding = Finding(cause=Cause.UNKNOWN, candidates=(Blame(2, 1.0, AWAITED),))
    (incident,) = ledger.report(finding, "alert", NOW_S + 5.0)
    assert [c.confidence for c in incident.candidates] == [0.5]


def test_what_is_to_be_done_to_processes_is_not_to_be_done_once_it_is_over() -> None:
    # GIVEN an alert of a stopped rank, with the command that continues it
    a, n = analyzer(), hung(1)
    n.is_(1, ProcessState.STOPPED)
    said = watch(a, n, first_s=1.5, last_s=5.0)
    assert [step.partition(": ")[2] for step in said[-1].next] == ["kill -CONT 101"]
    # WHEN it goes on
    n.is_(1, ProcessState.SLEEPING)
    for rank in range(4):
        n.moves_on(rank).did(rank, 7, 12)
    said = watch(a, n, first_s=5.5, last_s=8.0)
    assert said[-1].status == "recovered"
    assert said[-1].next == ()
    # AND a step that does not need them stays
    ledger = analyzer_with_world().ledger
    finding = Finding(cause=Cause.UNKNOWN, next=(clause(Says.STACKS_OF_SUSPECTS), clause(Says.SEE_LAUNCHER)))
    ledger.report(finding, "alert", NOW_S + 5.0)
    (over,) = ledger.end(NOW_S + 6.0)
    assert over.next == ("see what ended the whole job: the launcher's log, the scheduler, dmesg",)


def test_iteration_is_that_of_the_onset() -> None:
    # GIVEN ranks that are in iteration 40
    a = analyzer_with_world(iteration=40)
    blame = (Blame(1, 0.9, AWAITED),)
    slow = Finding(cause=Cause.COMPUTE_SLOW, kind="slow", culprits=blame, iteration=18, onset_s=NOW_S)
    (first,) = a.ledger.keep("rank 1", slow, "notice", NOW_S + 1.0, 10.0)
    # WHEN more is known of the same, from a later window
    later = replace(slow, iteration=31, onset_s=NOW_S + 3.0, reason=Reason.CPU_LIMIT)
    (second,) = a.ledger.keep("rank 1", later, "alert", NOW_S + 5.0, 10.0)
    # THEN onset and iteration stay those of the beginning
    assert first.onset == second.onset
    assert [i.stage and i.stage.iteration for i in (first, second)] == [18, 18]
    # AND of what was long ago, or nobody knows when, the iteration of now is not reported
    (unknown,) = a.ledger.keep("rank 2", replace(slow, iteration=None), "notice", NOW_S + 1.0, 10.0)
    wrong = Finding(cause=Cause.INCONSISTENT, kind="failed", fault_class="H2", culprits=(Blame(3, 0.9, AWAITED),))
    (closed,) = a.ledger.add_closed(wrong, NOW_S + 6.0)
    assert [i.stage and i.stage.iteration for i in (unknown, closed)] == [None, None]
    # AND of a hang, whose ranks are still where they were, it is
    (hang,) = a.ledger.report(
        Finding(cause=Cause.NOT_ENTERED, culprits=(Blame(1, 0.9, AWAITED),)), "alert", NOW_S + 7.0
    )
    assert hang.stage is not None
    assert hang.stage.iteration == 40


def analyzer_with_world(iteration: int | None = None) -> Analyzer:
    """One that knows four ranks, and in which iteration they are."""
    a, n = analyzer(), hung()
    a.feed(n.batch(1.0), NOW_S + 1.0)
    if iteration is not None:
        steps = np.zeros(4, RECORD)
        steps["counter"] = iteration
        a.store.sequences.steps.feed(np.arange(4), steps)
    return a


def test_a_wait_that_comes_again_for_the_same_reason_is_reported_once() -> None:
    # GIVEN rank 0 evaluates, and all others wait for it until it comes, three times
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    said: list[Incident] = []
    for evaluation in range(3):
        start_s, counter = 30.0 * evaluation, 9 + evaluation
        for rank in (1, 2, 3):
            n.waits(rank, 7, counter, since_s=start_s)
        n.did(0, 7, counter - 1)
        said += watch(a, n, first_s=start_s + 0.5, last_s=start_s + 6.0)
        for rank in range(4):
            n.moves_on(rank).did(rank, 7, counter)
        said += watch(a, n, first_s=start_s + 6.5, last_s=start_s + 29.5)
    # THEN a notice says so once, and ends
    assert {(i.severity, i.status) for i in said} == {("notice", "open"), ("notice", "recovered")}
    assert len({i.id for i in said}) == 1
    # BUT one that lasts twice as long is news again
    for rank in (1, 2, 3):
        n.waits(rank, 7, 12, since_s=90.0)
    n.did(0, 7, 11)
    assert len({i.id for i in said + watch(a, n, first_s=90.5, last_s=109.0)}) == 2


def test_one_of_two_that_is_named_takes_their_incident_over() -> None:
    # GIVEN two ranks of which one may only wait for the other
    a = analyzer_with_world(iteration=40)
    both = tuple(Blame(rank, 0.5, AWAITED) for rank in (1, 2))
    open_question = Finding(cause=Cause.UNKNOWN, kind="slow", candidates=both, iteration=18, onset_s=NOW_S)
    (first,) = a.ledger.keep("ranks 1 and 2", open_question, "alert", NOW_S + 1.0, 10.0)
    # WHEN both turn out to be slow
    slow = [
        replace(
            open_question,
            cause=Cause.COMPUTE_SLOW,
            candidates=(),
            culprits=(Blame(rank, 0.9, AWAITED),),
        )
        for rank in (1, 2, 3)
    ]
    reported = [a.ledger.keep(f"rank {f.culprits[0].rank}", f, "alert", NOW_S + 5.0, 10.0)[0] for f in slow]
    # THEN the first of them goes on with the incident, which is not said to be over, and the others have their own
    assert [one.id == first.id for one in reported] == [True, False, False]
    assert a.ledger.drop(lambda key: key == "ranks 1 and 2", NOW_S + 6.0) == []
    # AND while they look alike again nothing new is said of them
    assert a.ledger.keep("ranks 1 and 2", open_question, "alert", NOW_S + 7.0, 10.0) == []


@pytest.mark.parametrize(
    ("key", "explanation", "is_the_same"),
    [
        ("rank 1", {"cause": Cause.COMPUTE_SLOW, "culprits": (Blame(1, 0.9, AWAITED),)}, True),
        ("links", {"cause": Cause.COMMUNICATION_SLOW, "links": (Link(src=1, dst=2, end="path"),)}, True),
        ("imbalance", {"cause": Cause.IMBALANCE}, False),
        (
            "rank 1",
            {"cause": Cause.COMPUTE_SLOW, "culprits": (Blame(1, 0.9, AWAITED),), "onset_s": NOW_S + 3600},
            False,
        ),
    ],
)
def test_what_explains_long_iterations_is_their_incident(
    key: str, explanation: dict[str, object], *, is_the_same: bool
) -> None:
    # GIVEN iterations that take longer, for no reason that is known
    a = analyzer_with_world(iteration=40)
    unexplained = Finding(cause=Cause.UNKNOWN, kind="slow", iteration=18, onset_s=NOW_S)
    (first,) = a.ledger.keep("iterations", unexplained, "notice", NOW_S + 1.0, 10.0)
    # WHEN it is found who or what is slow THEN that is no second incident
    (second,) = a.ledger.keep(key, replace(unexplained, **explanation), "alert", NOW_S + 5.0, 10.0)
    assert (second.id == first.id) == is_the_same
    # AND it ends when that is over, and not when iterations are explained
    assert (a.ledger.drop(lambda key: key == "iterations", NOW_S + 6.0) == []) == is_the_same


def test_what_comes_again_is_the_same_incident_and_takes_no_other_over() -> None:
    # GIVEN a rank that was slow and is not, and that may have waited for another since
    a = analyzer_with_world(iteration=40)
    blame = (Blame(1, 0.9, AWAITED),)
    slow = Finding(cause=Cause.COMPUTE_SLOW, kind="slow", culprits=blame, iteration=18, onset_s=NOW_S)
    both = tuple(Blame(rank, 0.5, AWAITED) for rank in (1, 3))
    (first,) = a.ledger.keep("rank 1", slow, "alert", NOW_S + 1.0, 10.0)
    a.ledger.drop(lambda key: key == "rank 1", NOW_S + 2.0)
    open_question = replace(slow, cause=Cause.UNKNOWN, culprits=(), candidates=both)
    (second,) = a.ledger.keep("ranks 1 and 3", open_question, "alert", NOW_S + 3.0, 10.0)
    # WHEN it is slow again THEN that is the first incident, and the other one can still end
    (again,) = a.ledger.keep("rank 1", slow, "alert", NOW_S + 4.0, 10.0)
    assert again.id == first.id
    (over,) = a.ledger.drop(lambda key: key == "ranks 1 and 3", NOW_S + 5.0)
    assert (over.id, over.status) == (second.id, "recovered")
