"""What was true a moment ago blames nobody for what happens now."""

from __future__ import annotations

import numpy as np
import pytest
from batches import T0, WORLD, Node, S, analyzer, comm_info, hung, last_of, records, watch

from whichrank.model.codes import Status
from whichrank.model.incident import Cause, Reason
from whichrank.model.telemetry import Event, ProcessState

NOW_S = T0 / S


def test_who_came_at_last_is_not_to_blame_when_all_exit_at_once_afterwards() -> None:
    # GIVEN rank 2 comes 4 s late to a barrier, and right behind it all ranks exit with code 3
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=5.0)
    for rank in range(4):
        n.moves_on(rank).did(rank, 7, 9).is_(rank, ProcessState.GONE, ended_ns=n.ns(5.3))
    exits = [Event("exit", rank, 100 + rank, n.ns(5.3), status=3 << 8) for rank in range(4)]
    a.feed(n.batch(5.5, events=exits), NOW_S + 5.5)
    said += watch(a, n, first_s=5.6, last_s=8.0) + a.finish(NOW_S + 8.5)
    # THEN that is reported, and nobody is named
    assert said
    assert not any(i.culprits for i in said)


def test_who_came_at_last_is_not_to_blame_when_another_exits() -> None:
    # GIVEN the same, and only rank 1 exits, which was waiting before
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=5.0)
    for rank in range(4):
        n.moves_on(rank).did(rank, 7, 9)
    n.is_(1, ProcessState.GONE, ended_ns=n.ns(5.3))
    a.feed(n.batch(5.5, events=[Event("exit", 1, 101, n.ns(5.3), status=5 << 8)]), NOW_S + 5.5)
    said += watch(a, n, first_s=5.6, last_s=8.0)
    assert {c.rank for i in said for c in i.culprits} == {1}


def test_who_is_late_when_all_are_killed_is_no_alert() -> None:
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=5.0)
    for rank in range(4):
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(5.3))
    exits = [Event("exit", rank, 100 + rank, n.ns(5.3), status=9) for rank in range(4)]
    a.feed(n.batch(5.5, events=exits), NOW_S + 5.5)
    said += watch(a, n, first_s=5.6, last_s=8.0) + a.finish(NOW_S + 8.5)
    assert not any(i.severity == "alert" and i.culprits for i in said)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("waited_too", [False, True])
def test_who_waited_too_when_an_operation_timed_out_is_not_named(waited_too: bool, again: bool) -> None:
    # GIVEN rank 0's operation times out at 3.0, since rank 1 has not entered it; rank 1 waited for rank 3 until 3.2
    own = comm_info(8, [1, 3], "mesh_dp")
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(comm_info(7, [0, 1], "mesh_tp"), own)
    n.did(1, 7, 8).did(0, 7, 9, 8)
    rows = [records(0, 7, 9, 1, status=Status.FAILED, t_issue_ns=n.ns(1.5), t_end_ns=n.ns(3.0))]
    if waited_too:
        rows += [records(1, 8, 5, 1, t_issue_ns=n.ns(1.4), t_end_ns=n.ns(3.2))]
    if again:  # and in another one after that
        rows += [records(1, 8, 6, 1, t_issue_ns=n.ns(4.5), t_end_ns=n.ns(4.9))]
    reported = b"Timed out waiting 1500ms for recv operation to complete"
    n.is_(0, ProcessState.SLEEPING, first_failure_ns=n.ns(3.0), failure=reported)
    a.feed(n.batch(5.0, np.concatenate(rows)), NOW_S + 5.0)
    said = watch(a, n, first_s=5.1, last_s=8.0)
    # THEN it is named only if it had nobody to wait for
    assert {c.rank for i in said for c in i.culprits} == (set() if waited_too else {1})
    assert {i.cause for i in said} == {Cause.UNKNOWN if waited_too else Cause.NOT_ENTERED}


def test_a_failure_that_says_nothing_says_it_once() -> None:
    # GIVEN rank 0's operation failed; whoever did not wait when it was looked at changes with each snapshot
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    n.is_(0, ProcessState.SLEEPING, first_failure_ns=n.ns(1.0), failure=b"Connection closed by peer")
    failed = records(0, 7, 9, 1, status=Status.FAILED, t_issue_ns=n.ns(0.5), t_end_ns=n.ns(1.0))
    said = []
    a.feed(n.did(0, 7, 9, 8).batch(1.1, failed), NOW_S + 1.1)
    for snapshot in range(12):
        at_s = 1.5 + snapshot / 2
        for rank in (1, 2, 3):
            n.moves_on(rank).did(rank, 7, 9 if snapshot % 2 else 8)
        said += watch(a, n, first_s=at_s, last_s=at_s)
    assert len(said) <= 2


def test_a_rank_that_leaves_slowly_after_a_death_is_no_death_of_its_own() -> None:
    # GIVEN rank 1 is killed; rank 0 fails over it, and needs 50 s to leave; 2 and 3 go on in their own group
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(comm_info(7, [0, 1]), comm_info(8, [2, 3], name="x"))
    n.waits(0, 7, 9, since_s=4.0).did(1, 7, 8)
    a.feed(n.batch(1.4, records(0, 7, 1, 1, t_issue_ns=n.ns(1.0), t_end_ns=n.ns(1.1))), NOW_S + 1.4)
    said = watch(a, n, first_s=1.5, last_s=4.5)
    reported = {"failure": b"Connection closed by peer", "exception": b"DistBackendError: Connection closed by peer"}
    n.is_(1, ProcessState.GONE, ended_ns=n.ns(5.0)).moves_on(0).did(0, 7, 9, 8)
    n.is_(0, ProcessState.SLEEPING, first_failure_ns=n.ns(5.1), exception_ns=n.ns(5.2), **reported)
    failed = records(0, 7, 9, 1, status=Status.FAILED, t_issue_ns=n.ns(4.0), t_end_ns=n.ns(5.1))
    a.feed(n.batch(5.3, failed, events=[Event("exit", 1, 101, n.ns(5.0), status=9)]), NOW_S + 5.3)
    for step in range(100):
        at_s = 5.5 + step / 2
        went = [records(r, 8, step + 1, 1, t_issue_ns=n.ns(at_s - 0.2), t_end_ns=n.ns(at_s - 0.1)) for r in (2, 3)]
        a.feed(n.did(2, 8, step + 1).did(3, 8, step + 1).batch(at_s, np.concatenate(went)), NOW_S + at_s)
        said += a.tick(NOW_S + at_s + 0.1)
    n.is_(0, ProcessState.GONE, ended_ns=n.ns(55.4))
    a.feed(n.batch(55.5, events=[Event("exit", 0, 100, n.ns(55.4), status=1 << 8)]), NOW_S + 55.5)
    said += watch(a, n, first_s=55.6, last_s=60.0)
    assert {c.rank for i in said for c in i.culprits} == {1}


def test_ranks_that_the_launcher_ended_after_they_had_raised_were_not_ended_by_the_user() -> None:
    # GIVEN all fail with a lost connection and raise; the first one to end has the launcher end the others
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    watch(a, n, first_s=1.0, last_s=4.5)
    rows = [records(r, 7, 9, 1, status=Status.FAILED, t_issue_ns=n.ns(4.6), t_end_ns=n.ns(5.0)) for r in range(4)]
    raised = {"exception_ns": n.ns(5.05), "exception": b"DistBackendError: connection reset by peer"}
    for r in range(4):
        ended = {"ended_ns": n.ns(5.5 if r == 0 else 5.6)}
        n.did(r, 7, 9, 8).is_(r, ProcessState.GONE, first_failure_ns=n.ns(5.0), failure=b"reset", **raised, **ended)
    exits = [Event("exit", r, 100 + r, n.ns(5.6), status=15 if r else 1 << 8) for r in range(4)]
    a.feed(n.batch(5.7, np.concatenate(rows), events=exits), NOW_S + 5.7)
    # THEN it is reported that the job failed
    assert [i.severity for i in watch(a, n, first_s=5.8, last_s=10.0)][:1] == ["alert"]


@pytest.mark.parametrize(("late_s", "named"), [(3.0, set()), (8.0, {2})])
def test_a_victim_that_gives_up_unseen_is_not_named(late_s: float, named: set[int]) -> None:
    # GIVEN rank 2 does not come, and the others exit one by one, before a sensor has seen their operations fail
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=1.0 + late_s)
    for place, rank in enumerate((0, 1, 3)):
        at_s = 1.5 + late_s + 1.2 * place
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(at_s))
        a.feed(n.batch(at_s + 0.1, events=[Event("exit", rank, 100 + rank, n.ns(at_s), status=1 << 8)]), NOW_S + at_s)
        said += watch(a, n, first_s=at_s + 0.2, last_s=at_s + 1.1)
    said += watch(a, n, first_s=6.0 + late_s, last_s=9.0 + late_s) + a.finish(NOW_S + 10.0 + late_s)
    # THEN rank 2 is, if it was reported before, and otherwise nobody
    assert said
    assert {c.rank for i in said for c in i.culprits} == named


def test_when_all_exit_alike_whoever_was_late_is_one_of_them() -> None:
    # GIVEN a notice of rank 2, and then all ranks exit with code 3 within a moment, rank 2 too
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=9.0)
    for rank in range(4):
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(9.2 + rank / 100))
    exits = [Event("exit", rank, 100 + rank, n.ns(9.2), status=3 << 8) for rank in range(4)]
    a.feed(n.batch(9.4, events=exits), NOW_S + 9.4)
    said += watch(a, n, first_s=9.5, last_s=12.0) + a.finish(NOW_S + 13.0)
    assert not any(i.severity == "alert" and i.culprits for i in said)


def test_the_alert_comes_before_the_timeout_though_another_was_waited_for_at_first() -> None:
    # GIVEN a timeout of 20 s; rank 2 waits for rank 1 for 3 s, then has what it needs, and does not come
    tp, dp = comm_info(7, [1, 2], "mesh_tp"), comm_info(8, [0, 2, 3], "mesh_dp")
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(tp, dp)
    for rank in (0, 3):
        n.waits(rank, 8, 9, since_s=1.0, timeout_ms=20_000)
    n.did(2, 8, 8).waits(2, 7, 5, since_s=0.9, timeout_ms=20_000).did(1, 7, 4)
    said = watch(a, n, first_s=1.5, last_s=4.0)
    n.moves_on(2).did(2, 7, 5).did(1, 7, 5)
    n.computing |= {1, 2}
    said += watch(a, n, first_s=4.5, last_s=18.5)
    assert last_of(said)["job-1"] == ("alert", "open", (2,))


@pytest.mark.parametrize(
    ("way_out", "reason"),
    [
        ({"exception_ns": 2, "exception": b"ValueError: bad row at train.py:3"}, Reason.EXCEPTION),
        ({"closed_ns": 2}, None),
    ],
)
def test_a_process_that_takes_long_to_end_is_reported_before_it_has(
    way_out: dict[str, int | bytes], reason: Reason | None
) -> None:
    # GIVEN ranks wait for rank 2, whose interpreter is on its way out and takes its time
    a, n = analyzer(), hung(2)
    n.is_(2, ProcessState.RUNNING, **{k: n.ns(1.2) if k.endswith("_ns") else v for k, v in way_out.items()})
    said = watch(a, n, first_s=1.5, last_s=3.5)
    # THEN that is reported as a death, and its end adds nothing
    assert [(i.severity, i.cause, [c.rank for c in i.culprits], i.reason) for i in said] == [
        ("alert", Cause.PROCESS_EXIT, [2], reason)
    ]
    n.is_(2, ProcessState.GONE, ended_ns=n.ns(9.0))
    a.feed(n.batch(9.1, events=[Event("exit", 2, 102, n.ns(9.0), status=0 if reason is None else 1 << 8)]), NOW_S + 9.1)
    assert {c.rank for i in watch(a, n, first_s=9.5, last_s=12.0) for c in i.culprits} <= {2}
    assert len(a.ledger.incidents) == 1


def test_an_exception_that_a_rank_has_survived_is_over() -> None:
    # GIVEN a rank whose thread of the interpreter raised, and all that go on well without it
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(comm_info(8, [0, 1, 3]))
    n.is_(2, ProcessState.SLEEPING, exception_ns=n.ns(1.0), exception=b"ValueError: bad row at train.py:3")
    said = []
    for step in range(40):
        at_s = 1.5 + step / 2
        went = [records(r, 8, step + 1, 1, t_issue_ns=n.ns(at_s - 0.2), t_end_ns=n.ns(at_s - 0.1)) for r in (0, 1, 3)]
        for rank in (0, 1, 3):
            n.did(rank, 8, step + 1)
        a.feed(n.batch(at_s, np.concatenate(went)), NOW_S + at_s)
        said += a.tick(NOW_S + at_s + 0.1)
    # THEN its death is reported, and is no news any more
    assert [(i.severity, i.status) for i in said] == [("alert", "open"), ("alert", "recovered")]


def test_a_rank_that_has_left_is_reported_soon_after_its_peers_have_failed_over_it() -> None:
    # GIVEN ranks wait for rank 2, whose interpreter has finished, and fail when its process closes its connections
    a, n = analyzer(), hung(2)
    n.is_(2, ProcessState.RUNNING, closed_ns=n.ns(1.1))
    assert watch(a, n, first_s=1.75, last_s=1.75) == []
    reported = {"first_failure_ns": n.ns(2.2), "failure": b"Connection closed by peer", "exception_ns": n.ns(2.21)}
    reported["exception"] = b"RuntimeError: Connection closed by peer"
    rows = [records(r, 7, 9, 1, status=Status.FAILED, t_issue_ns=n.ns(1.0), t_end_ns=n.ns(2.2)) for r in (0, 1, 3)]
    for rank in (0, 1, 3):
        n.moves_on(rank).did(rank, 7, 9, 8).is_(rank, ProcessState.SLEEPING, **reported)
    a.feed(n.batch(2.25, np.concatenate(rows)), NOW_S + 2.25)
    # THEN it is named half a second later
    said = watch(a, n, first_s=2.35, last_s=2.6, every_s=0.25)
    assert [(i.severity, i.cause, [c.rank for c in i.culprits]) for i in said] == [("alert", Cause.PROCESS_EXIT, [2])]
