"""Waits that no sensor marks: what may be inferred, and above all what may not."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from whichrank.agent.inferred import WaitInference
from whichrank.agent.processes import ThreadSnapshot
from whichrank.model.codes import Flag, WaitHow
from whichrank.model.rows import COMM, HEADER, INFLIGHT_ROW, PAIR, WAIT
from whichrank.model.telemetry import ProcessState, WaitChannel
from whichrank.ring.reader import RingSnapshot, Rows

SECOND = 1_000_000_000
NOW = 100 * SECOND
ASLEEP = ThreadSnapshot(ProcessState.SLEEPING, WaitChannel.LOCK, 5)
RUNNING = ThreadSnapshot(ProcessState.RUNNING, WaitChannel.NONE, 5)


def inflight(*rows: dict[str, int]) -> Rows:
    table = np.zeros(len(rows), INFLIGHT_ROW)
    for place, row in enumerate(rows):
        given = {
            "state": 2,
            "issue_tid": 10,
            "counter": place + 1,
            "comm_id": 7,
            "t_issue_ns": NOW - 5 * SECOND + place,
        }
        for name, value in (given | row).items():
            table[name][place] = value
    return table


def snapshot(table: Rows, at_ns: int = NOW, waiting: tuple[int, ...] = ()) -> RingSnapshot:
    waits = np.zeros(len(waiting), WAIT)
    waits["tid"] = waiting
    slots = np.arange(len(table)) + 3
    return RingSnapshot(
        at_ns, np.zeros(1, HEADER), np.zeros(0, COMM), np.zeros(0, int), table, slots, waits, np.zeros(0, PAIR)
    )


def reported(inference: WaitInference, seen: RingSnapshot, thread: ThreadSnapshot = ASLEEP) -> list[tuple[int, int]]:
    """(counter, how) of what is inferred."""
    rows = inference.waits(seen, lambda tid: thread)
    return [(int(row["counter"]), int(row["how"])) for row in rows]


FUTURE = {"flags": int(Flag.FUTURE_TAKEN)}


def test_future_is_a_wait_at_the_second_snapshot() -> None:
    # GIVEN three operations whose futures were taken, by a thread that lies in a futex
    inference = WaitInference()
    table = inflight(FUTURE, FUTURE, FUTURE)
    assert reported(inference, snapshot(table)) == []
    # THEN at the next snapshot it waits for the oldest, since the first snapshot
    rows = inference.waits(snapshot(table, NOW + SECOND), lambda tid: ASLEEP)
    assert rows[["counter", "how", "tid", "since_ns", "comm_id", "inflight"]].tolist() == [
        (1, WaitHow.FUTURE, 10, NOW, 7, 3)
    ]
    # and goes on to do so since then
    assert inference.waits(snapshot(table, NOW + 2 * SECOND), lambda tid: ASLEEP)["since_ns"].tolist() == [NOW]


@pytest.mark.parametrize(
    "second",
    [
        ThreadSnapshot(ProcessState.SLEEPING, WaitChannel.LOCK, 6),
        ThreadSnapshot(ProcessState.SLEEPING, WaitChannel.SLEEP, 5),
        ThreadSnapshot(ProcessState.SLEEPING, WaitChannel.IO, 5),
        ThreadSnapshot(ProcessState.SLEEPING, WaitChannel.UNKNOWN, 5),
        ThreadSnapshot(ProcessState.SLEEPING, WaitChannel.LOCK, -1),
        ThreadSnapshot(ProcessState.STOPPED, WaitChannel.UNKNOWN, 5),
        RUNNING,
    ],
)
def test_future_of_a_thread_that_does_anything_else_is_no_wait(second: ThreadSnapshot) -> None:
    inference = WaitInference()
    table = inflight(FUTURE)
    reported(inference, snapshot(table))
    assert reported(inference, snapshot(table, NOW + SECOND), second) == []


def test_sleep_is_not_carried_over_to_the_next_operation() -> None:
    # GIVEN a thread that slept on one operation, which then completed
    inference = WaitInference()
    table = inflight(FUTURE, FUTURE)
    reported(inference, snapshot(table[:1]))
    assert reported(inference, snapshot(table[1:], NOW + SECOND)) == []


def test_young_future_costs_no_snapshot_at_its_thread() -> None:
    def thread(tid: int) -> ThreadSnapshot:
        raise AssertionError("looked")

    young = inflight({**FUTURE, "t_issue_ns": NOW - SECOND // 10})
    assert WaitInference().waits(snapshot(young), thread).size == 0


def test_entry() -> None:
    # GIVEN a call that has not returned for five seconds, of a thread that does not run
    inference = WaitInference()
    table = inflight({"state": 1})
    assert reported(inference, snapshot(table)) == []
    rows = inference.waits(
        snapshot(table, NOW + SECOND), lambda tid: ThreadSnapshot(ProcessState.SLEEPING, WaitChannel.IO, 9)
    )
    assert rows[["how", "since_ns"]].tolist() == [(WaitHow.ENTRY, NOW - 5 * SECOND)]


@pytest.mark.parametrize(
    ("row", "thread"),
    [({"state": 1}, RUNNING), ({"state": 1, "t_issue_ns": NOW - SECOND // 2}, ASLEEP), ({"state": 2}, ASLEEP)],
)
def test_no_entry(row: dict[str, int], thread: ThreadSnapshot) -> None:
    inference = WaitInference()
    table = inflight(row)
    reported(inference, snapshot(table), thread)
    assert reported(inference, snapshot(table, NOW + SECOND // 4), thread) == []


def test_poll_counts_from_its_first_snapshot() -> None:
    inference = WaitInference()
    rows = inference.waits(snapshot(inflight({"polled_ns": NOW - 10})), lambda tid: RUNNING)
    assert rows[["how", "since_ns"]].tolist() == [(WaitHow.POLL, NOW - 10)]
    later = snapshot(inflight({"polled_ns": NOW + SECOND}), NOW + SECOND + 5)
    assert inference.waits(later, lambda tid: RUNNING)["since_ns"].tolist() == [NOW - 10]
    # WHEN nobody has asked for a second, THEN it is over
    assert reported(inference, snapshot(inflight({"polled_ns": NOW + SECOND}), NOW + 3 * SECOND)) == []


@pytest.mark.parametrize("row", [FUTURE, {"state": 1}, {"polled_ns": NOW - 1}])
def test_thread_that_a_sensor_marked_is_left_alone(row: dict[str, int]) -> None:
    inference = WaitInference()
    for at_ns in (NOW, NOW + SECOND // 2):
        assert reported(inference, snapshot(inflight(row), at_ns, waiting=(10,))) == []


def test_one_wait_per_thread() -> None:
    # GIVEN a thread to which all three would apply
    inference = WaitInference()
    table = inflight({"state": 1}, FUTURE, {"polled_ns": NOW})
    reported(inference, snapshot(table))
    assert reported(inference, snapshot(table, NOW + SECOND // 2)) == [(1, WaitHow.ENTRY)]


def test_two_threads_wait_for_themselves() -> None:
    inference = WaitInference()
    table = inflight(FUTURE, {**FUTURE, "issue_tid": 11})
    reported(inference, snapshot(table))
    assert reported(inference, snapshot(table, NOW + SECOND)) == [(1, WaitHow.FUTURE), (2, WaitHow.FUTURE)]


def test_nothing_in_flight_asks_nobody() -> None:
    thread: Callable[[int], ThreadSnapshot] = lambda tid: pytest.fail("looked")  # noqa: E731
    assert WaitInference().waits(snapshot(inflight(), time.monotonic_ns()), thread).size == 0
