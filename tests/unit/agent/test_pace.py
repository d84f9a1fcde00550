"""How often a quiet agent looks: by what its snapshots cost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whichrank.agent.agent import Agent
from whichrank.model.commands import Pace
from whichrank.ring.folder import JobFolder
from whichrank.wire.inprocess import InProcessAnalyzerEnd


@pytest.mark.parametrize(("waits_s", "pause_s"), [(0.0, 0.8), (0.15, 0.8), (0.4, 0.6), (0.99, 0.48), (1.01, 0.8)])
def test_a_wait_that_may_become_suspicious_is_polled_sooner(tmp_path: Path, waits_s: float, pause_s: float) -> None:
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    agent = Agent(folder, InProcessAnalyzerEnd().connect(), stay=True)
    for _ in range(200):
        agent._note_cost(0.0024)
    agent._longest_wait_ns = round(waits_s * 1e9)
    assert agent._pause_s() == pytest.approx(pause_s)
    agent.close()


def test_snapshots_at_connections_that_are_asked_for_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN an agent whose looks seem to cost 10 ms
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    agent = Agent(folder, InProcessAnalyzerEnd().connect(), stay=True)
    now_s, noted = iter(range(1000)), list[float]()
    monkeypatch.setattr("time.thread_time", lambda: next(now_s) / 100)
    monkeypatch.setattr(agent, "_note_cost", noted.append)
    monkeypatch.setattr(agent, "_is_over", lambda: agent.polls >= 3)
    monkeypatch.setattr(agent, "_pause_s", lambda: 0.0)
    monkeypatch.setattr(agent, "_finish", lambda: None)
    for asked, counted in ((False, 3), (True, 0)):
        # WHEN it looks three times, asked for connections or not THEN only what it does by itself sets its pace
        agent.polls, agent._pace = 0, Pace(connections=asked)
        noted.clear()
        agent.run()
        assert len(noted) == counted
    agent.close()


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.0001, 0.5), (0.0024, 0.8), (0.1, 1.0)])
def test_quiet_snapshots_keep_to_their_share_of_a_core(tmp_path: Path, cost_s: float, pause_s: float) -> None:
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    agent = Agent(folder, InProcessAnalyzerEnd().connect(), stay=True)
    for _ in range(200):
        agent._note_cost(cost_s)
    assert agent._pause_s() == pytest.approx(pause_s)
    agent.close()
