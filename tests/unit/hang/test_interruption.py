"""Ctrl-C, a scheduler's end, and a trainer that ends the ranks it started: what follows is no fault of a rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import T0, WORLD, Node, S, analyzer, hung, last_of, records, watch

from whichrank.analyzer import Analyzer
from whichrank.model.incident import Incident
from whichrank.model.telemetry import Event, ProcessState

NOW_S = T0 / S


def signalled(n: Node, at_s: float, name: str = "SIGINT") -> Event:
    return Event("signal", -1, 0, n.ns(at_s), name)


def ends(n: Node, rank: int, at_s: float, status: int, **row: Any) -> Event:
    n.is_(rank, ProcessState.GONE, ended_ns=n.ns(at_s), exit_status=status, **row)
    return Event("exit", rank, 100 + rank, n.ns(at_s), status=status)


def went_on(n: Node, ranks: tuple[int, ...], issue_s: float) -> np.ndarray[Any, Any]:
    """Records of operations that these ranks issued and completed later."""
    rows = [records(rank, 7, 20, 1, t_issue_ns=n.ns(issue_s), t_end_ns=n.ns(issue_s + 0.01)) for rank in ranks]
    return np.concatenate(rows)


def finished(a: Analyzer, n: Node, at_s: float) -> list[Incident]:
    a.feed(n.batch(at_s), NOW_S + at_s)
    return a.finish(NOW_S + at_s)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize(
    ("status", "row"),
    [
        (9, {}),
        (1 << 8, {}),
        (1 << 8, {"exception_ns": 1, "exception": b"ValueError: half a batch at a.py:3"}),
        (11, {}),
    ],
)
def test_an_end_after_the_signal_is_its_consequence(name: str, status: int, row: dict[str, Any]) -> None:
    # GIVEN a healthy job WHEN it is asked to end, and one rank ends before all others
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    said = watch(a, n, first_s=0.5, last_s=1.0)
    row = {key: n.ns(1.5) if key == "exception_ns" else value for key, value in row.items()}
    events = [signalled(n, 1.2, name), ends(n, 1, 1.6, status, **row)]
    for rank in (0, 2, 3):
        n.is_(rank, ProcessState.SLEEPING, first_failure_ns=n.ns(1.61), failure=b"Connection closed by peer")
    a.feed(n.batch(1.8, events=events), NOW_S + 1.8)
    said += watch(a, n, first_s=2.0, last_s=5.0)
    for rank in (0, 2, 3):
        ends(n, rank, 5.2, 1 << 8)
    # THEN nothing is reported
    assert said + finished(a, n, 5.5) == []


def test_ranks_that_wait_after_the_signal_wait_because_of_it() -> None:
    # GIVEN three ranks that wait for one which saves its state for long
    a, n = analyzer(), hung(2, since_s=1.5)
    a.feed(n.batch(1.2, events=[signalled(n, 1.2, "SIGTERM")]), NOW_S + 1.2)
    assert watch(a, n, first_s=1.6, last_s=50.0) == []


def test_a_death_before_the_signal_is_a_fault() -> None:
    # GIVEN rank 1 is killed WHEN somebody presses Ctrl-C before its death is judged
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    said = watch(a, n, first_s=0.5, last_s=1.0)
    events = [ends(n, 1, 1.2, 9), signalled(n, 1.6)]
    a.feed(n.batch(1.7, events=events), NOW_S + 1.7)
    for rank in (0, 2, 3):
        ends(n, rank, 1.8, 2)
    said += watch(a, n, first_s=1.9, last_s=4.0)
    assert last_of(said) == {"job-1": ("alert", "open", (1,))}


def test_an_alert_before_the_signal_stands() -> None:
    # GIVEN a hang that was reported as an alert
    a, n = analyzer(), hung(2)
    said = watch(a, n, first_s=1.5, last_s=30.0)
    assert last_of(said) == {"job-1": ("alert", "open", (2,))}
    # WHEN the user ends it, and another rank goes first
    a.feed(n.batch(30.5, events=[signalled(n, 30.4), ends(n, 0, 30.5, 9)]), NOW_S + 30.5)
    said += watch(a, n, first_s=31.0, last_s=33.0)
    for rank in (1, 2, 3):
        ends(n, rank, 33.1, 9)
    said += finished(a, n, 33.5)
    # THEN it is neither replaced nor recovered
    assert last_of(said) == {"job-1": ("alert", "final", (2,))}


def test_a_job_that_trains_on_is_judged_again() -> None:
    # GIVEN a job that ignores SIGINT, and goes on
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    watch(a, n, first_s=0.5, last_s=1.0)
    a.feed(n.batch(1.2, events=[signalled(n, 1.2)]), NOW_S + 1.2)
    a.feed(n.batch(7.0, went_on(n, (0, 1, 2, 3), 6.8)), NOW_S + 7.0)
    said = watch(a, n, first_s=7.2, last_s=8.0)
    # WHEN a rank is killed THEN it is named, although an agent that was started again says the old signal once more
    a.feed(n.batch(9.0, events=[ends(n, 1, 8.9, 9), signalled(n, 1.2)]), NOW_S + 9.0)
    said += watch(a, n, first_s=9.2, last_s=12.0)
    assert last_of(said) == {"job-1": ("alert", "open", (1,))}


def test_what_ended_while_the_job_survived_is_no_news() -> None:
    # GIVEN a job that loses rank 1 to Ctrl-C and goes on without it
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    watch(a, n, first_s=0.5, last_s=1.0)
    a.feed(n.batch(1.4, events=[signalled(n, 1.2), ends(n, 1, 1.3, 9)]), NOW_S + 1.4)
    a.feed(n.batch(7.0, went_on(n, (0, 2, 3), 6.8)), NOW_S + 7.0)
    assert watch(a, n, first_s=7.2, last_s=10.0) == []


def test_a_job_of_which_nobody_ends_for_minutes_is_judged_again() -> None:
    # GIVEN a job that ignores SIGTERM WHEN one of its ranks hangs at once THEN it is reported minutes later
    a, n = analyzer(), hung(2, since_s=1.5)
    a.feed(n.batch(1.2, events=[signalled(n, 1.2, "SIGTERM")]), NOW_S + 1.2)
    assert watch(a, n, first_s=1.6, last_s=290.0, every_s=1.0) == []
    said = watch(a, n, first_s=291.0, last_s=330.0)
    assert last_of(said) == {"job-1": ("alert", "open", (2,))}


def test_the_force_that_follows_a_signal_is_no_news() -> None:
    # GIVEN a job that trains on after SIGTERM WHEN its scheduler kills all ranks at once THEN nothing is reported
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    watch(a, n, first_s=0.5, last_s=1.0)
    a.feed(n.batch(1.2, events=[signalled(n, 1.2, "SIGTERM")]), NOW_S + 1.2)
    a.feed(n.batch(40.0, went_on(n, (0, 1, 2, 3), 39.0)), NOW_S + 40.0)
    said = watch(a, n, first_s=40.2, last_s=41.0)
    a.feed(n.batch(42.0, events=[ends(n, rank, 41.9 + rank / 100, 9) for rank in range(4)]), NOW_S + 42.0)
    said += watch(a, n, first_s=42.2, last_s=44.0)
    assert said + finished(a, n, 44.5) == []


def test_the_signal_of_one_node_explains_the_ends_on_another() -> None:
    # GIVEN two nodes with clocks of their own WHEN the pod of the first is removed, and its rank is the first to go
    a = analyzer()
    first = Node("a:1", [0, 1], 4, clock_s=900.0).comm(WORLD)
    second = Node("b:1", [2, 3], 4, delay_s=0.2).comm(WORLD)
    said = watch(a, first, second, first_s=0.5, last_s=1.0)
    a.feed(first.batch(1.6, events=[signalled(first, 1.2, "SIGTERM"), ends(first, 0, 1.5, 9)]), NOW_S + 1.6)
    for rank in (2, 3):
        ends(second, rank, 1.6, 1 << 8, exception_ns=second.ns(1.55), exception=b"MyError: peer lost at train.py:9")
    said += watch(a, first, second, first_s=1.8, last_s=5.0)
    assert said + finished(a, first, 5.5) == []


def asked(n: Node, rank: int, at_s: float) -> Event:
    """A process of the job sends this rank SIGTERM."""
    return Event("asked", rank, 100 + rank, n.ns(at_s), "SIGTERM")


def test_a_launcher_that_passes_the_signal_on_explains_the_waits_that_follow() -> None:
    # GIVEN a trainer that got SIGTERM itself, and says the ranks that it started WHEN its handler holds up the others
    a, n = analyzer(), hung(0, since_s=1.5)
    a.feed(n.batch(1.4, events=[asked(n, 1, 1.2), asked(n, 2, 1.2)]), NOW_S + 1.4)
    assert watch(a, n, first_s=1.6, last_s=60.0) == []


def test_a_rank_that_exits_because_it_was_asked_to_has_not_died_of_itself() -> None:
    # GIVEN ranks that catch the SIGTERM of their launcher WHEN they save their state and exit, one of them sooner
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    said = watch(a, n, first_s=0.5, last_s=1.0)
    a.feed(n.batch(1.4, events=[asked(n, rank, 1.2) for rank in range(4)]), NOW_S + 1.4)
    a.feed(n.batch(2.4, events=[ends(n, 1, 2.3, 1 << 8)]), NOW_S + 2.4)
    said += watch(a, n, first_s=2.6, last_s=4.0)
    a.feed(n.batch(4.4, events=[ends(n, rank, 4.3, 1 << 8) for rank in (0, 2, 3)]), NOW_S + 4.4)
    assert said + finished(a, n, 5.0) == []


def test_a_launcher_that_ends_the_others_after_a_death_hides_no_death() -> None:
    # GIVEN rank 1 exits of itself, which is seen after the launcher has reported the others to end
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    said = watch(a, n, first_s=0.5, last_s=1.0)
    events = [*(asked(n, rank, 1.25) for rank in (0, 2, 3)), ends(n, 1, 1.3, 7 << 8)]
    events += [ends(n, rank, 1.4, 15) for rank in (0, 2, 3)]
    a.feed(n.batch(1.5, events=events), NOW_S + 1.5)
    said += watch(a, n, first_s=1.6, last_s=4.0)
    assert last_of(said + finished(a, n, 4.5)) == {"job-1": ("alert", "final", (1,))}


def launched(n: Node, *ranks: int) -> list[Event]:
    """Rank 0 started these, through a shell."""
    return [Event("launched", rank, 100 + rank, n.ns(0.1), f"{9000 + rank} 100 4000") for rank in ranks]


def killed_by_rank_0(world: int) -> tuple[Analyzer, Node, list[Incident]]:
    """Rank 0 kills all that it has started; nobody has seen a signal."""
    a, n = analyzer(), Node("a:1", list(range(world)), world).comm(WORLD)
    a.feed(n.batch(0.4, events=launched(n, *range(1, world))), NOW_S + 0.4)
    said = watch(a, n, first_s=0.5, last_s=1.0)
    events = [ends(n, rank, 1.2 + rank / 1000, 9) for rank in range(1, world)]
    a.feed(n.batch(1.4, events=events), NOW_S + 1.4)
    return a, n, said


@pytest.mark.parametrize("world", [2, 4])
def test_a_trainer_that_ends_the_ranks_it_started_leaves_nobody_to_name(world: int) -> None:
    a, n, said = killed_by_rank_0(world)
    said += watch(a, n, first_s=1.6, last_s=3.0)
    a.feed(n.batch(3.2, events=[ends(n, 0, 3.1, 1 << 8)]), NOW_S + 3.2)
    said += watch(a, n, first_s=3.4, last_s=5.0)
    assert [i for i in said + finished(a, n, 5.5) if i.severity == "alert"] == []


def test_a_trainer_whose_operation_fails_has_lost_its_rank() -> None:
    # GIVEN the same, but rank 0 was in an operation: somebody else has killed the rank that it started
    a, n, said = killed_by_rank_0(2)
    n.is_(0, ProcessState.SLEEPING, first_failure_ns=n.ns(1.21), failure=b"Connection closed by peer")
    said += watch(a, n, first_s=1.6, last_s=4.0)
    assert last_of(said) == {"job-1": ("alert", "open", (1,))}


def test_a_process_that_ends_one_rank_does_not_hide_that_the_others_hang() -> None:
    # GIVEN a supervisor of the job that ends rank 1 alone, which all others wait for since
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    watch(a, n, first_s=0.5, last_s=1.0)
    n.did(1, 7, 8)
    for rank in (0, 2, 3):
        n.waits(rank, 7, 9, since_s=1.2)
    reported = [Event("asked", 1, 101, n.ns(1.1), "SIGTERM"), ends(n, 1, 1.3, 15)]
    a.feed(n.batch(1.5, events=reported), NOW_S + 1.5)
    # THEN nothing is said while the launcher may end the rest, and it is reported after that
    assert not watch(a, n, first_s=2.0, last_s=40.0)
    said = watch(a, n, first_s=40.5, last_s=140.0)
    assert [i.severity for i in said][:1] == ["alert"]


def test_an_exception_that_the_program_got_over_is_none() -> None:
    # GIVEN all ranks, which caught what they raised and ended with exit code 0
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    watch(a, n, first_s=0.5, last_s=1.0)
    raised = {"exception_ns": n.ns(1.2), "exception": b"ValueError: no such shard at a.py:3"}
    a.feed(n.batch(1.6, events=[ends(n, rank, 1.5, 0, **raised) for rank in range(4)]), NOW_S + 1.6)
    assert not finished(a, n, 3.0)
