"""What comes after a death or a failure that the job has got over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import T0, WORLD, Node, S, analyzer, comm_info, last_of, records, watch

from whichrank.model.codes import Status
from whichrank.model.telemetry import Event, ProcessState

NOW_S = T0 / S


def went_on(n: Node, ranks: tuple[int, ...], issue_s: float) -> list[Any]:
    """Records of operations that these ranks issued and completed later."""
    return [records(rank, 7, 20, 1, t_issue_ns=n.ns(issue_s), t_end_ns=n.ns(issue_s + 0.01)) for rank in ranks]


def test_what_comes_after_a_death_that_the_job_got_over_is_reported() -> None:
    # GIVEN rank 1 is killed, and the others go on without it
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    watch(a, n, first_s=0.5, last_s=1.0)
    n.is_(1, ProcessState.GONE, ended_ns=n.ns(1.2))
    a.feed(n.batch(1.4, events=[Event("exit", 1, 101, n.ns(1.2), status=9)]), NOW_S + 1.4)
    said = watch(a, n, first_s=1.5, last_s=4.0)
    assert last_of(said) == {"job-1": ("alert", "open", (1,))}
    a.feed(n.batch(6.0, np.concatenate(went_on(n, (0, 2, 3), 5.5))), NOW_S + 6.0)
    assert last_of(watch(a, n, first_s=6.5, last_s=7.0)) == {"job-1": ("alert", "recovered", (1,))}
    # WHEN rank 2 is killed too THEN it is another incident, and the first death is none of it
    n.is_(2, ProcessState.GONE, ended_ns=n.ns(8.0))
    a.feed(n.batch(8.4, events=[Event("exit", 2, 102, n.ns(8.0), status=9)]), NOW_S + 8.4)
    assert last_of(watch(a, n, first_s=8.5, last_s=11.0)) == {"job-2": ("alert", "open", (2,))}


def test_a_hang_after_a_failure_that_was_dealt_with_is_reported() -> None:
    # GIVEN an operation of rank 0 that failed; all ranks have gone on since
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    n.is_(0, ProcessState.SLEEPING, first_failure_ns=n.ns(1.0), failure=b"Timed out waiting 3000ms")
    watch(a, n, first_s=1.5, last_s=3.0)
    a.feed(n.batch(6.0, np.concatenate(went_on(n, (0, 1, 2, 3), 5.5))), NOW_S + 6.0)
    # WHEN rank 2 does not come to a later one, long before a minute has passed
    for rank in (0, 1, 3):
        n.waits(rank, 7, 21, since_s=7.0)
    n.did(2, 7, 20)
    said = watch(a, n, first_s=7.5, last_s=30.0)
    assert last_of(said)[said[-1].id] == ("alert", "open", (2,))


@pytest.mark.parametrize("late_s", [0.0, 0.01])
def test_the_jitter_of_batches_does_not_make_an_old_death_new(late_s: float) -> None:
    # GIVEN a death that was got over, and then a rank that does not come; each other batch is a little late
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD, comm_info(8, [0, 2, 3], "mesh_dp"))
    n.is_(1, ProcessState.GONE, ended_ns=n.ns(1.2))
    a.feed(n.batch(1.4, events=[Event("exit", 1, 101, n.ns(1.2), status=9)]), NOW_S + 1.4)
    said = watch(a, n, first_s=1.5, last_s=4.0)
    a.feed(n.batch(6.0, np.concatenate(went_on(n, (0, 2, 3), 5.5))), NOW_S + 6.0)
    n.did(2, 8, 4).waits(0, 8, 5, since_s=9.2).waits(3, 8, 5, since_s=9.2)
    for snapshot in range(60):
        at_s = 9.5 + snapshot / 2
        a.feed(n.batch(at_s), NOW_S + at_s + late_s * (snapshot % 2))
        said += a.tick(NOW_S + at_s + 0.1) + a.tick(NOW_S + at_s + 0.3)
    assert last_of(said) == {"job-1": ("alert", "recovered", (1,)), "job-2": ("alert", "open", (2,))}


def test_a_contradiction_that_was_dealt_with_hides_no_later_hang() -> None:
    # GIVEN an operation that failed, since rank 2 issued another one; all have gone on since
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    times = {"t_issue_ns": n.ns(0.5), "t_end_ns": n.ns(1.0)}
    failed = np.concatenate([records(rank, 7, 5, 1, status=Status.FAILED, **times) for rank in range(4)])
    failed["row"]["count"][2] = 4096
    for rank in range(4):
        n.did(rank, 7, 5).is_(rank, ProcessState.SLEEPING, first_failure_ns=n.ns(1.0), failure=b"Connection closed")
    a.feed(n.batch(1.2, failed), NOW_S + 1.2)
    watch(a, n, first_s=1.5, last_s=3.0)
    for rank in range(4):
        n.did(rank, 7, 20)
    a.feed(n.batch(6.0, np.concatenate(went_on(n, (0, 1, 2, 3), 5.5))), NOW_S + 6.0)
    watch(a, n, first_s=6.2, last_s=8.0)
    # WHEN rank 3 does not come later
    for rank in (0, 1, 2):
        n.waits(rank, 7, 21, since_s=30.0)
    said = watch(a, n, first_s=31.0, last_s=52.0)
    assert last_of(said)[said[-1].id] == ("alert", "open", (3,))


def test_a_rank_that_fails_again_and_ends_is_a_victim_still() -> None:
    # GIVEN an operation of rank 0 that failed, and was dealt with; later rank 2 is late, and the others time out again
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    n.is_(0, ProcessState.SLEEPING, first_failure_ns=n.ns(1.0), failure=b"Timed out waiting 3000ms")
    first = records(0, 7, 5, 1, status=Status.FAILED, t_issue_ns=n.ns(0.5), t_end_ns=n.ns(1.0))
    a.feed(n.batch(1.2, first), NOW_S + 1.2)
    watch(a, n, first_s=1.5, last_s=3.0)
    a.feed(n.batch(6.0, np.concatenate(went_on(n, (0, 1, 2, 3), 5.5))), NOW_S + 6.0)
    watch(a, n, first_s=6.2, last_s=7.0)
    for rank in (0, 1, 3):
        n.did(rank, 7, 21)
    again = [records(r, 7, 21, 1, status=Status.FAILED, t_issue_ns=n.ns(8), t_end_ns=n.ns(9)) for r in (0, 1, 3)]
    n.did(2, 7, 20).is_(0, ProcessState.GONE, ended_ns=n.ns(9.1))
    exits = [Event("exit", 0, 100, n.ns(9.1), status=1 << 8)]
    a.feed(n.batch(9.2, np.concatenate(again), events=exits), NOW_S + 9.2)
    said = watch(a, n, first_s=9.5, last_s=13.0)
    # THEN rank 0, whose ring says the first failure only, is not taken for the culprit
    assert said
    assert not any(0 in [c.rank for c in i.culprits] for i in said)


def test_a_dead_rank_that_was_got_over_is_named_when_it_is_missed() -> None:
    # GIVEN rank 0 is killed; the others go on in a group of their own, and fail in the next operation of all
    own = comm_info(8, [1, 2, 3], "mesh_dp")
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD, own)
    n.is_(0, ProcessState.GONE, ended_ns=n.ns(1.2))
    a.feed(n.batch(1.4, events=[Event("exit", 0, 100, n.ns(1.2), status=9)]), NOW_S + 1.4)
    said = watch(a, n, first_s=1.5, last_s=3.0)
    a.feed(n.batch(6.0, np.concatenate(went_on(n, (1, 2, 3), 5.5))), NOW_S + 6.0)
    said += watch(a, n, first_s=6.2, last_s=7.0)
    rows = [records(r, 7, 9, 1, status=Status.FAILED, t_issue_ns=n.ns(8), t_end_ns=n.ns(8.1)) for r in (1, 2, 3)]
    for rank in (1, 2, 3):
        n.did(rank, 7, 9, 8).is_(rank, ProcessState.GONE, ended_ns=n.ns(8.3))
        n.is_(rank, ProcessState.GONE, exception_ns=n.ns(8.2), exception=b"RuntimeError: Connection closed by peer")
        n.is_(rank, ProcessState.GONE, first_failure_ns=n.ns(8.1), failure=b"Connection closed by peer")
    exits = [Event("exit", rank, 100 + rank, n.ns(8.3), status=1 << 8) for rank in (1, 2, 3)]
    a.feed(n.batch(8.5, np.concatenate(rows), events=exits), NOW_S + 8.5)
    said += watch(a, n, first_s=9.0, last_s=12.0)
    assert last_of(said) == {"job-1": ("alert", "recovered", (0,)), "job-2": ("alert", "open", (0,))}


@pytest.mark.parametrize(
    ("since_s", "went_on", "failed", "reported"),
    [(3.0, True, False, True), (1.5, True, False, False), (3.0, False, False, False), (3.0, True, True, False)],
)
def test_a_rank_that_is_late_soon_after_a_death_is_reported_too(
    since_s: float, went_on: bool, failed: bool, reported: bool
) -> None:
    # GIVEN rank 1 is killed at 1.2, and before the job has got over it, rank 2 does not come to a group without rank 1
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD, comm_info(8, [0, 2, 3], "mesh_dp"))
    watch(a, n, first_s=0.5, last_s=1.0)
    n.is_(1, ProcessState.GONE, ended_ns=n.ns(1.2))
    a.feed(n.batch(1.4, events=[Event("exit", 1, 101, n.ns(1.2), status=9)]), NOW_S + 1.4)
    n.did(2, 8, 4).waits(0, 8, 5, since_s=since_s).waits(3, 8, 5, since_s=since_s)
    if failed:
        n.is_(2, ProcessState.SLEEPING, first_failure_ns=n.ns(1.25), failure=b"Connection closed by peer")
    if went_on:
        issued = {"t_issue_ns": n.ns(since_s - 0.2), "t_end_ns": n.ns(since_s - 0.1)}
        a.feed(n.batch(since_s, records(2, 8, 4, 1, **issued)), NOW_S + since_s)
    said = watch(a, n, first_s=since_s + 0.1, last_s=since_s + 25)
    # THEN it is an incident of its own, unless it may be a consequence: at once, or of a rank that needs the dead one
    assert last_of(said) == {"job-1": ("alert", "open", (1,))} | (
        {"job-2": ("alert", "open", (2,))} if reported else {}
    )


def test_a_rank_that_is_stopped_right_after_a_death_is_reported_too() -> None:
    # GIVEN rank 1 is killed, the others go on without it, and a moment later rank 2 is stopped
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD, comm_info(8, [0, 2, 3], "mesh_dp"))
    watch(a, n, first_s=0.5, last_s=1.0)
    n.is_(1, ProcessState.GONE, ended_ns=n.ns(1.2))
    a.feed(n.batch(1.4, events=[Event("exit", 1, 101, n.ns(1.2), status=9)]), NOW_S + 1.4)
    said = watch(a, n, first_s=1.5, last_s=3.0)
    n.did(2, 8, 4).is_(2, ProcessState.STOPPED).waits(0, 8, 5, since_s=3.2).waits(3, 8, 5, since_s=3.2)
    said += watch(a, n, first_s=3.5, last_s=9.0)
    assert last_of(said) == {"job-1": ("alert", "open", (1,)), "job-2": ("alert", "open", (2,))}


def test_a_failure_that_was_dealt_with_is_no_alarm_at_the_end_either() -> None:
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    n.is_(0, ProcessState.SLEEPING, first_failure_ns=n.ns(1.0), failure=b"Timed out waiting 3000ms")
    said = watch(a, n, first_s=1.5, last_s=2.0)
    for rank in range(4):
        n.is_(rank, ProcessState.GONE, closed_ns=n.ns(2.1), ended_ns=n.ns(2.2), exit_status=0)
    said += watch(a, n, first_s=2.5, last_s=3.0) + a.finish(NOW_S + 4.0)
    assert {i.severity for i in said} <= {"notice"}
