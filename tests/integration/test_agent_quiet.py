"""An agent that sleeps while all is well: it says so each second, reads seldom, and wakes when something may matter."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_process import RankProcess, eventually

from whichrank.agent import agent as agent_module
from whichrank.agent.agent import Agent
from whichrank.agent.watch import MOST_RECORDS
from whichrank.model.commands import Command, Order, Pace, ProbePaths, Reply, ReportAgain
from whichrank.model.telemetry import Batch, ProcessState
from whichrank.ring.folder import JobFolder
from whichrank.wire.zmq_transport import ZmqAgentEnd, ZmqAnalyzerEnd

pytestmark = pytest.mark.integration

WORLD = "0,1"
QUIET_S = 3600.0
"""So long between two snapshots that each one that comes has a reason."""


class Job:
    """Two ranks that have met, an agent in a thread, and what it reported."""

    def __init__(self, base: Path, stack: ExitStack) -> None:
        self.folder = JobFolder.create("job", owner_pid=os.getpid(), base=base)
        self.ranks = [stack.enter_context(RankProcess(self.folder.path, rank, 2)) for rank in (0, 1)]
        for group_rank, rank in enumerate(self.ranks):
            rank.do(f"comm tp {group_rank} {WORLD}")
            rank.do("op 0 5")
        self.end = ZmqAnalyzerEnd([f"ipc://{base}/s"])
        self.agent = Agent(self.folder, ZmqAgentEnd(self.end.addresses[0]), stay=True, poll_every_s=0.1)
        self.batches: list[Batch] = []
        self.orders: list[Order] = [Pace(every_s=QUIET_S)]
        self._numbers = iter(range(1, 1_000_000))
        self._thread = threading.Thread(target=self.agent.run)
        self._thread.start()

    def pump(self) -> None:
        for batch, _ in self.end.receive(0.05):
            self.batches.append(batch)
            commands = tuple(Command(next(self._numbers), order) for order in self.orders)
            self.orders.clear()
            self.end.reply(batch.agent, Reply(4, batch.sequence, commands=commands))

    def words(self) -> int:
        """How often it has said since the latest snapshot that all is well."""
        states = [at for at, batch in enumerate(self.batches) if batch.ranks]
        return sum(batch.is_well for batch in self.batches[states[-1] :]) if states else 0

    def is_asleep(self) -> bool:
        self.pump()
        return self.words() >= 2

    def is_awake(self) -> bool:
        self.pump()
        return not self.words()

    def close(self) -> None:
        self.agent.stop()
        while self._thread.is_alive():
            self.pump()
        self.agent.close()
        self.end.close()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(agent_module, "WELL_AFTER_S", 0.3)
    monkeypatch.setattr(agent_module, "WORD_EVERY_S", 0.2)
    with ExitStack() as stack:
        found = Job(tmp_path, stack)
        yield found
        found.close()


def test_it_says_that_all_is_well_and_reads_nothing(job: Job) -> None:
    eventually(job.is_asleep)
    polls = job.agent.polls
    job.ranks[0].do("op 0 50")
    for _ in range(20):
        job.pump()
    # THEN nothing was read, though operations go on; a word carries no states
    assert job.agent.polls == polls
    assert job.batches[-1].is_well
    assert (job.batches[-1].ranks, job.batches[-1].sequence) == (b"", 0)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_stops_or_ends_wakes_it(job: Job, number: signal.Signals) -> None:
    eventually(job.is_asleep)
    os.kill(job.ranks[1].pid, number)
    eventually(job.is_awake)
    states = {ProcessState(row["state"]) for row in job.batches[-1].rank_rows()}
    expected = {ProcessState.STOPPED} if number == signal.SIGSTOP else {ProcessState.ZOMBIE, ProcessState.GONE}
    assert states & expected


def test_an_operation_that_stays_in_flight_wakes_it(job: Job) -> None:
    eventually(job.is_asleep)
    began_s = time.monotonic()
    for step in ("begin 0", "issued", "wait"):
        job.ranks[0].do(step)
    eventually(job.is_awake)
    assert time.monotonic() - began_s >= agent_module.SUSPICIOUS_WAIT_NS / 1e9 - 0.5
    assert len(job.batches[-1].wait_rows()) == 1


def test_it_reads_before_records_are_overwritten(job: Job) -> None:
    eventually(job.is_asleep)
    polls = job.agent.polls

    def records() -> np.ndarray[Any, Any]:
        job.pump()
        return np.concatenate([batch.record_rows() for batch in job.batches])

    job.ranks[0].do("op 0 5000")
    eventually(lambda: len(records()) >= MOST_RECORDS)
    # THEN they come by themselves: the node is not looked at
    assert not any(batch.ranks for batch in job.batches if len(batch.record_rows()) >= MOST_RECORDS)
    assert job.agent.polls == polls
    # WHEN they are of a communicator of which nothing is known yet THEN it is
    for group_rank, rank in enumerate(job.ranks):
        rank.do(f"comm pp {group_rank} {WORLD}")
    job.ranks[0].do("op 1 5000")
    eventually(lambda: job.agent.polls > polls)
    eventually(lambda: len(np.unique(records()["comm"])) == 2)
    assert (records()["comm"] != 0).all()
    assert all(int(row["lost_records"]) == 0 for batch in job.batches for row in batch.rank_rows())


def test_an_order_wakes_it(job: Job) -> None:
    eventually(job.is_asleep)
    job.orders.append(ReportAgain())
    eventually(job.is_awake)
    assert job.batches[-1].comm_info or any(batch.comm_info for batch in job.batches[-3:])


def test_it_probes_paths_in_its_sleep(job: Job) -> None:
    eventually(job.is_asleep)
    polls = job.agent.polls
    job.orders.append(ProbePaths(("127.0.0.1",)))
    eventually(lambda: [job.pump(), any(event.probe for batch in job.batches for event in batch.events)][1])
    # THEN the answers were told, and it sleeps on
    eventually(job.is_asleep)
    assert job.agent.polls == polls + 1


def test_a_closer_pace_wakes_it_at_once_and_keeps_it_awake(job: Job) -> None:
    eventually(job.is_asleep)
    # WHEN the analyzer does not wait for its word
    agent = job.batches[-1].agent
    pace = Command(999_999_999, Pace(closely=True, every_s=QUIET_S))
    job.end.reply(agent, Reply(4, job.batches[-1].sequence, commands=(pace,)))
    eventually(job.is_awake)
    for _ in range(20):
        job.pump()
    assert not any(batch.is_well for batch in job.batches[-5:])


def test_an_analyzer_that_answers_no_more_is_noticed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN short intervals, since a snapshot has to come for it to be noticed
    monkeypatch.setattr(agent_module, "UNHEARD_NS", 200_000_000)
    job.orders.append(Pace(every_s=0.5))
    eventually(job.is_asleep)
    # WHEN nobody answers any more THEN it looks for itself again
    polls = job.agent.polls
    eventually(lambda: job.agent.polls > polls + 2 and not job.agent._watch.is_armed)
