"""The frame sampler in the agent: what it says of a rank whose socket sensor counts, and that it ends."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rank_process import eventually
from ring_writer import RingWriter

from whichrank.agent.agent import Agent
from whichrank.agent.frames import BURST_MS, PERIOD_US, RATES, FrameSampler, rate_rows
from whichrank.model.commands import Reply
from whichrank.model.rows import FRAME
from whichrank.model.telemetry import Batch
from whichrank.ring.folder import JobFolder
from whichrank.wire.inprocess import InProcessAnalyzerEnd

pytestmark = pytest.mark.integration
SOCKET, ON, ABSENT = 1, 1, 0


class Job:
    """One ring of this process, and an agent that is asked to look."""

    def __init__(self, base: Path) -> None:
        self.folder = JobFolder.create("job", owner_pid=os.getpid(), base=base)
        self.writer = RingWriter(self.folder.path / f"{os.getpid()}.ring", 0, 1)
        self.writer.core.wr_sensor_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p)
        self.writer.core.wr_frame_count.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
        self.end = InProcessAnalyzerEnd()
        self.agent = Agent(self.folder, self.end.connect(), stay=True)

    def socket_sensor(self, state: int) -> None:
        self.writer.core.wr_sensor_set(self.writer.ring, SOCKET, state, b"")

    def send(self, messages: int) -> None:
        for _ in range(messages):
            self.writer.core.wr_frame_count(self.writer.ring, 0, 0)

    def snapshot(self) -> Batch:
        self.agent.poll_and_report()
        (arrival,) = self.end.receive()
        self.end.reply(arrival.batch.agent, Reply(4, arrival.batch.sequence))
        self.agent._hear()
        return arrival.batch


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.agent.close()


def sampling() -> bool:
    """Whether the sampler's thread runs in this process."""
    tasks = Path("/proc/self/task").iterdir()
    return any((task / "comm").read_text().strip() == "whichrank-frame" for task in tasks)


def test_messages_are_counted_in_the_window(job: Job) -> None:
    # GIVEN a rank whose sockets send all the time
    job.socket_sensor(ON)
    slot = job.writer.comm("tp", [0])
    job.writer.begin(slot)
    stop = threading.Event()
    sender = threading.Thread(target=lambda: [job.send(5) for _ in iter(lambda: stop.wait(0.001), True)])
    sender.start()
    # WHEN the sampler has had a window
    rows = np.empty(0)

    def reported() -> bool:
        nonlocal rows
        rows = job.snapshot().rate_rows()
        return bool(rows.size) and int(rows["send_messages"][0]) > 0

    eventually(reported)
    stop.set()
    sender.join()
    # THEN it says messages, changes and CCL-D's rate, and that nothing was received
    (row,) = rows
    assert int(row["rank"]) == 0
    assert 0 < int(row["send_changes"]) == int(row["active_send"]) <= int(row["samples"])
    assert int(row["send_messages"]) >= 5 * int(row["send_changes"]) // 2
    assert float(row["send_rate"]) == 1 / int(row["send_changes"])
    assert (int(row["recv_messages"]), float(row["recv_rate"])) == (0, 0.0)
    # AND the window is a burst: from its first snapshot to its last there are as many periods as fit, or fewer looks
    length_us = (int(row["end_ns"]) - int(row["start_ns"])) // 1000
    assert length_us >= BURST_MS * 1000 - PERIOD_US
    assert 0 < int(row["samples"]) <= BURST_MS * 1000 // PERIOD_US
    assert int(row["op_sent"]) > 0


def test_thread_runs_only_while_a_ring_counts(job: Job) -> None:
    assert job.snapshot().rate_rows().size == 0
    assert not sampling()
    job.socket_sensor(ON)
    job.snapshot()
    job.snapshot()
    eventually(sampling)
    job.socket_sensor(ABSENT)
    job.snapshot()
    job.snapshot()
    assert not sampling()
    job.socket_sensor(ON)
    job.snapshot()
    job.snapshot()
    eventually(sampling)
    job.agent._frames.close()
    assert not sampling()


def test_no_library_no_rates(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichrank.agent.frames._core", lambda: None)
    sampler = FrameSampler()
    job.socket_sensor(ON)
    job.snapshot()
    sampler.poll(job.agent._node, closely=True)
    assert sampler.rates(job.agent._node.watches()).size == 0
    sampler.close()


def test_rows_sum_over_channels() -> None:
    # GIVEN one rank with a window and one without
    rates, frames = np.zeros(2, RATES), np.zeros(2, FRAME)
    rates["windows"] = [1, 0]
    rates["last"]["samples"] = 40
    rates["last"]["channel"]["send_changes"][0, :2] = [3, 1]
    rates["last"]["channel"]["recv_messages"][0, 5] = 7
    frames["kernel_index"] = [2, 1 << 40]
    frames["block"]["channel"]["send_count"][0, 2] = 1
    frames["block"]["channel"]["send_count"][0, 3] = 100
    # THEN only the first has a row, and counts are of its latest operation
    (row,) = rate_rows([4, 5], rates, frames)
    assert (int(row["rank"]), int(row["send_changes"]), float(row["send_rate"])) == (4, 4, 0.25)
    assert (int(row["recv_messages"]), float(row["recv_rate"]), int(row["op_sent"])) == (7, 0.0, 8)


def test_layout_is_that_of_the_header() -> None:
    # 3 words; two windows of 6 words and 8 channels of 6 words
    assert RATES.itemsize == 8 * (3 + 2 * (6 + 8 * 6))
