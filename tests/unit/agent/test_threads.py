"""Which thread of a rank trains, by its ring and its real threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rank_process import eventually

from whichrank.agent.processes import GONE, IoSnapshot
from whichrank.agent.threads import forget_ended_threads, training_thread
from whichrank.agent.usage import Host, UsageWatch
from whichrank.model.rows import COMM, FRAME, HEADER, INFLIGHT_ROW, PAIR, WAIT
from whichrank.ring.reader import RingSnapshot

PID = os.getpid()


@pytest.fixture
def thread() -> Iterator[int]:
    """A thread of this process that lives as long as the test."""
    end = threading.Event()
    one = threading.Thread(target=end.wait)
    one.start()
    assert one.native_id is not None
    yield one.native_id
    end.set()
    one.join()


@pytest.fixture
def ended() -> int:
    one = threading.Thread(target=int)
    one.start()
    one.join()
    assert one.native_id is not None
    eventually(lambda: not Path(f"/proc/{PID}/task/{one.native_id}").exists())
    return one.native_id


def issued_by(*tids: int) -> RingSnapshot:
    """A ring with one communicator for each of these threads, the latest operation last."""
    comms = np.zeros(len(tids), COMM)
    comms["last_tid"], comms["last_issue_ns"] = tids, 1 + np.arange(len(tids))
    places = np.arange(len(tids))
    nothing = np.empty(0, np.intp)
    return RingSnapshot(
        1, np.zeros(1, HEADER), comms, places, np.empty(0, INFLIGHT_ROW), nothing, np.empty(0, WAIT),
        np.empty(0, PAIR), np.zeros(1, FRAME),
    )  # fmt: skip


def test_the_one_that_makes_steps(thread: int) -> None:
    assert training_thread(PID, issued_by(PID), thread) == thread


def test_the_one_that_issued_last(thread: int) -> None:
    assert training_thread(PID, issued_by(PID, thread), 0) == thread
    assert training_thread(PID, issued_by(thread, PID), 0) == PID


def test_one_that_has_ended_is_none(thread: int, ended: int) -> None:
    assert training_thread(PID, issued_by(ended), 0) == 0
    assert training_thread(PID, issued_by(thread), ended) == thread
    assert training_thread(PID, issued_by(), 0) == 0


def test_a_communicator_is_not_served_by_a_thread_that_has_ended(thread: int, ended: int) -> None:
    snapshot = issued_by(ended, thread, PID)
    forget_ended_threads(PID, snapshot)
    assert snapshot.comms["last_tid"].tolist() == [0, thread, PID]
    snapshot = issued_by(PID, ended)
    forget_ended_threads(PID, snapshot)
    assert training_thread(PID, snapshot, 0) == 0, "another one goes on, and not the one that made the first operation"


def test_a_thread_of_torch_stands_for_the_main_one() -> None:
    end, ready = threading.Event(), threading.Event()

    def backward() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_autograd_0")
        ready.set()
        end.wait()

    one = threading.Thread(target=backward)
    one.start()
    ready.wait()
    assert one.native_id is not None
    assert training_thread(PID, issued_by(one.native_id), 0) == PID
    end.set()
    one.join()


def test_time_on_a_cpu_goes_on_where_another_thread_trains(thread: int) -> None:
    # GIVEN a rank whose main thread has run for long, and one that takes over and has run for a moment
    usage = UsageWatch(PID, Host())
    before = usage.sample(GONE, IoSnapshot(0, 0))
    after = usage.sample(GONE, IoSnapshot(0, 0), thread)
    # THEN the counters do not go back
    assert after.cpu_ns == before.cpu_ns
    assert after.delay_ns == before.delay_ns
    assert usage.sample(GONE, IoSnapshot(0, 0), thread).cpu_ns >= after.cpu_ns
