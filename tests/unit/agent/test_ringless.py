"""Ranks without a ring, found among real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from rank_process import RankProcess, eventually

from whichrank.agent import ringless
from whichrank.agent.node import Node
from whichrank.agent.outbox import Outbox
from whichrank.agent.processes import read_process
from whichrank.agent.ringless import Ringless
from whichrank.model.telemetry import ProcessState
from whichrank.ring.folder import JobFolder
from whichrank.surface.run.stacks_of_job import stacks_of

SLEEP = "import time; print(flush=True); time.sleep(60)"


@contextmanager
def process(folder: Path, rank: int | None, code: str = SLEEP, **more: str) -> Iterator[subprocess.Popen[str]]:
    """One that a launcher of the job has started."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("WHICHRANK", "TORCHELASTIC"))}
    reported = {} if rank is None else {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3"}
    environ = ours | {"WHICHRANK_DIR": str(folder), "LOCAL_WORLD_SIZE": "3"} | reported | more
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield started
        finally:
            started.kill()


def stop(one: subprocess.Popen[str]) -> None:
    os.kill(one.pid, signal.SIGSTOP)
    eventually(lambda: read_process(one.pid).state == ProcessState.STOPPED)


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)


def test_a_stopped_rank_without_a_ring_is_watched(folder: JobFolder) -> None:
    # GIVEN two ranks with rings and a third process that was reported its rank and has none
    with ExitStack() as started:
        for rank in (0, 1):
            started.enter_context(RankProcess(folder.path, rank, 3))
        server = started.enter_context(process(folder.path, 2))
        node = Node(folder, Outbox())
        started.callback(node.close)
        node.refresh(deep=False)
        assert [watch.rank for watch in node] == [0, 1], "it may be about to make its ring"

        # WHEN it is stopped
        stop(server)
        time.sleep(ringless.EVERY_NS / 1e9)
        node.refresh(deep=True)

        # THEN it is watched as that rank
        assert [(watch.rank, watch.has_ring) for watch in node] == [(0, True), (1, True), (2, False)]
        assert (node.watches()[2].pid, node.watches()[2].process.state) == (server.pid, ProcessState.STOPPED)
        assert node.rings == 2
        reported, _ = node.reported(closely=True, connections_closely=True, every_s=5.0)
        assert reported.ranks

        # WHEN it is killed, THEN its end is seen
        server.kill()
        eventually(lambda: node.refresh(deep=True) is None and bool(node.watches()[2].ended_ns))


def test_stacks_are_shown_of_a_rank_without_a_ring_too(folder: JobFolder) -> None:
    # GIVEN a rank with a ring and a stopped one without
    with RankProcess(folder.path, 0, 2), process(folder.path, 1) as server:
        stop(server)
        # THEN both are shown, and either can be asked for alone
        assert [(shown.rank, shown.state) for shown in stacks_of(folder)][1:] == [(1, "stopped")]
        (alone,) = stacks_of(folder, rank=1)
        assert alone.pid == server.pid


def test_one_that_has_made_its_ring_since_is_watched_by_it(folder: JobFolder) -> None:
    with process(folder.path, 0) as early, ExitStack() as started:
        stop(early)
        node = Node(folder, Outbox())
        started.callback(node.close)
        node.refresh(deep=False)
        assert [watch.has_ring for watch in node] == [False]
        started.enter_context(RankProcess(folder.path, 0, 1))
        node.refresh(deep=False)
        assert [watch.has_ring for watch in node] == [True]


def test_one_that_never_makes_a_ring(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ringless, "LONG_NS", 0)
    with process(folder.path, 2) as server:
        (found,) = Ringless(folder.path).find([0, 1], 3)
        assert (found.rank, found.pid, found.number("WORLD_SIZE")) == (2, server.pid, 3)


@pytest.mark.parametrize(
    ("rank", "more"),
    [
        (None, {}),  # no rank
        (2, {"WHICHRANK_RANK_PID": "1"}),  # a helper of a rank
        (2, {"WHICHRANK_DISABLE": "1"}),  # not to be watched
        (2, {"WHICHRANK_DIR": "/elsewhere"}),  # of another job
        (2, {"LOCAL_RANK": ""}),  # a launcher: RANK is the number of the node
        (1, {}),  # a rank that has a ring
    ],
)
def test_who_is_no_rank_without_a_ring(rank: int | None, more: dict[str, str], folder: JobFolder) -> None:
    with process(folder.path, rank, **more) as one:
        stop(one)
        assert Ringless(folder.path).find([0, 1], 3) == []


def test_the_shell_that_starts_a_rank_is_not_taken_for_it(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ringless, "LONG_NS", 0)
    code = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); p.wait()"
    with process(folder.path, 0, code=code) as outer:
        (found,) = Ringless(folder.path).find([], 0)
        assert found.pid == outer.pid, "of two Pythons the older one"
    with process(folder.path, 0, code="import os; os.execvp('sh', ['sh', '-c', 'echo; sleep 60; :'])"):
        (found,) = Ringless(folder.path).find([], 0)
        assert found.rank == 0


def test_nothing_is_searched_where_no_rank_is_missing(folder: JobFolder) -> None:
    with process(folder.path, 2) as one:
        stop(one)
        assert Ringless(folder.path).find([0, 1, 7], 3) == []
        assert Ringless(folder.path).find([0, 1], 0) == [], "ranks that no launcher has told their number"
