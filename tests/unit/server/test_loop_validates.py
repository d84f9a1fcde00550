"""When the loop asks ranks to pause, what it says of that, and what it does with a fault of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from loop_parts import BATCH, TICK_S, Agent, End, Snapshots
from msgspec.structs import replace

from whichrank.model.incident import Incident
from whichrank.model.job_now import Group, JobNow
from whichrank.model.telemetry import GATE_REPORTED
from whichrank.server import loop, validations
from whichrank.server.loop import AnalyzerLoop, Says
from whichrank.server.record import JobSummary, Record, utc_now
from whichrank.server.supervisor import AgentSupervisor
from whichrank.server.validations_file import Asked, Validated, requests, results_from_now_on
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd

RANKS = 4
STEPS = 10
SUMMARY = JobSummary(job="j", command=["x"], started=utc_now())


class Analyzed(Snapshots):
    """Four ranks that make a step in 0.1 s."""

    ended_ranks: Sequence[int] = ()
    iteration_s = 0.1
    ranks = RANKS

    def job_now(self) -> JobNow:
        ranks = tuple(range(self.ranks))
        group = Group(9, "world", ranks, "gloo")
        return JobNow(ranks, dict.fromkeys(ranks, "h:1"), (group,), self.iteration_s, None)


class Console:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.results: list[Validated] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def validated(self, result: Validated) -> None:
        self.results.append(result)

    def incident(self, incident: Incident) -> None:
        raise AssertionError(incident)


class Run:
    """A run that is stepped through."""

    def __init__(self, folder: Path, clock: list[float]) -> None:
        self.clock, self.end, self.analyzer, self.console = clock, End(), Analyzed(), Console()
        self.record = Record(folder)
        self.record.begin(SUMMARY)
        self.results = results_from_now_on(folder)
        self.loop = AnalyzerLoop(
            cast(ZmqAnalyzerEnd, self.end), self.analyzer, cast(AgentSupervisor, Agent()), TICK_S,
            cast(Says, self.console), self.record,
        )  # fmt: skip
        self.end.waiting.append((BATCH, True))
        self.loop.step()

    def step(self, **gate: int) -> None:
        """A tenth of a second, in which the agent says how its ranks are."""
        rows = np.zeros(RANKS, GATE_REPORTED)
        rows["rank"] = range(RANKS)
        rows["gate"]["steps"] = STEPS
        for name, value in gate.items():
            rows["gate"][name] = value
        self.clock[0] += 0.1
        self.end.waiting.append((replace(BATCH, sequence=0, is_well=True, gates=rows.tobytes()), False))
        self.loop.step()

    def arrive(self) -> None:
        """All ranks come as far as they are told to."""
        order: Any = None
        while not order or not order.at_step:
            self.step()
            order = self.end.commands[-1].order
        self.step(arrived=order.pause, steps=order.at_step)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    now = [100.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    run = Run(tmp_path, now)
    yield run
    run.record.close(SUMMARY)


def test_pause_is_said_when_all_ranks_wait(run: Run) -> None:
    requests(run.record.folder).ask(Asked(id="one"))
    run.step()
    run.step()
    assert run.console.said == []
    run.arrive()
    run.step()
    assert run.console.said == ["training is paused for some seconds, to measure ranks and links"]


@pytest.mark.parametrize(
    ("what", "why"),
    [("iteration_s", "the iterations of this job are not known yet"), ("ranks", "no rank of this job is seen")],
)
def test_pause_that_is_refused_is_not_said(what: str, why: str, run: Run) -> None:
    setattr(run.analyzer, what, 0)
    requests(run.record.folder).ask(Asked(id="one"))
    run.step()
    assert run.console.said == []
    assert [result.problem for result in run.console.results] == [why]
    assert [result.asked.id for result in run.results.read()] == ["one"]


@pytest.mark.parametrize("when", ["asked", "under way"])
def test_who_asks_is_answered_when_the_job_ends(when: str, run: Run) -> None:
    requests(run.record.folder).ask(Asked(id="one"))
    if when == "under way":
        run.step()
    run.end.is_over = True
    run.loop.drain()
    assert [(result.asked.id, result.problem) for result in run.results.read()] == [("one", "the job has ended")]


def test_training_goes_on_when_the_one_who_asked_has_left(run: Run) -> None:
    requests(run.record.folder).ask(Asked(id="one"))
    run.step()
    run.arrive()
    requests(run.record.folder).take_back("one")
    run.step()
    run.step()
    order: Any = run.end.commands[-1].order
    assert order.is_over
    for _ in range(12):
        run.step(arrived=order.pause, opened=order.pause)
    assert [result.problem for result in run.console.results] == ["who asked for it has left"]


@pytest.mark.parametrize("where", ["feed", "orders", "begin"])
def test_fault_of_ours_ends_the_validation_alone(where: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(validations.Validation, "feed" if where == "feed" else "orders", fail)
    if where == "begin":
        monkeypatch.setattr(run.analyzer, "job_now", fail)
    requests(run.record.folder).ask(Asked(id="one"))
    # WHEN it fails THEN that is raised once, agents are answered, and who asked hears of it
    faults = 0
    run.end.waiting.append((replace(BATCH, sequence=2), True))
    for _ in range(5):
        try:
            run.step()
        except ZeroDivisionError:
            faults += 1
    assert faults == 1
    assert 2 in [reply.acknowledged for reply in run.end.replies]
    assert [result.problem for result in run.results.read()] == ["a fault of whichrank"]
