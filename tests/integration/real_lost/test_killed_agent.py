"""An agent is killed while its job hangs: the next one finds all that the verdict needs, and reports nothing twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_jobs import RealJob, agents_of, alerts

pytestmark = pytest.mark.integration

RANKS, STOPPED, CODE = 4, 2, 7


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RealJob]:
    found = RealJob(tmp_path, RANKS)
    yield found
    found.end()


def kill_agent(job: RealJob) -> None:
    """Kill it, and wait for the next one."""
    (agent,) = agents_of(job.folder)
    os.kill(agent, signal.SIGKILL)
    job.until(lambda: agents_of(job.folder) not in ([], [agent]), "another agent")


def test_agent_killed_during_a_hang(job: RealJob) -> None:
    # GIVEN a job of which one rank is stopped
    output = job.start(0, RANKS)
    job.until_all_have_issued(2500)
    pid = job.issued()[STOPPED][0]
    os.kill(pid, signal.SIGSTOP)

    # WHEN the agent is killed before it can have reported so, and again after the verdict
    kill_agent(job)
    job.until(lambda: alerts(output), "an alert")
    kill_agent(job)
    time.sleep(5)

    # THEN the rank is named, once; and after it goes on the job ends as it would have
    assert {word.status for word in alerts(output)} == {"open"}
    os.kill(pid, signal.SIGCONT)
    job.until(lambda: alerts(output)[-1].status == "recovered", "recovery")
    job.order("finish")
    assert job.runs[0].wait(60) == CODE
    assert len({word.id for word in alerts(output)}) == 1, job.said()
    assert {(word.reason, tuple(c.rank for c in word.culprits)) for word in alerts(output)} == {("stopped", (STOPPED,))}
    assert job.said().count("ALERT hang: ") == 1
    assert job.said().count("the agent ended by signal 9 and is started again") == 2
