"""The agent against real rank processes: what it says of each, and what it survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_process import RankProcess, eventually

from whichrank.agent.agent import Agent
from whichrank.agent.node import Node
from whichrank.agent.processes import living_children
from whichrank.agent.profiles import profile
from whichrank.agent.rank import RankWatch
from whichrank.agent.stacks import StacksRefusedError, read_stacks
from whichrank.agent.tcp import Connections
from whichrank.model.codes import Flag, WaitHow
from whichrank.model.commands import Order, Pace, Reply, SampleThreads, TakeStacks
from whichrank.model.telemetry import Batch, ProcessState
from whichrank.ring.folder import JobFolder
from whichrank.server.commands import Commands
from whichrank.wire.inprocess import InProcessAnalyzerEnd
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd

pytestmark = pytest.mark.integration

WORLD = "0,1"


class Watched:
    """An agent in a thread of this process, and all that it reported."""

    def __init__(self, base: Path) -> None:
        self.folder = JobFolder.create("job", owner_pid=os.getpid(), base=base)
        self.end = ZmqAnalyzerEnd([f"ipc://{base}/s"])
        self.batches: list[Batch] = []
        self.stacks_of: list[int] = []
        self.profiles_of: list[int] = []
        self.closely = self.connections = False
        self.agent: Agent | None = None
        self._thread: threading.Thread | None = None
        self._commands = Commands()

    def start(self, *, stay: bool = True) -> None:
        from whichrank.wire.zmq_transport import ZmqAgentEnd

        self.agent = Agent(self.folder, ZmqAgentEnd(self.end.addresses[0]), stay=stay, poll_every_s=0.1)
        self._thread = threading.Thread(target=self.agent.run)
        self._thread.start()

    def pump(self) -> None:
        for batch, is_new in self.end.receive(0.05):
            self.batches.append(batch)
            orders: list[Order] = [Pace(closely=self.closely, connections=self.connections)]
            orders += [TakeStacks(tuple(self.stacks_of))] if self.stacks_of else []
            orders += [SampleThreads(tuple(self.profiles_of), 1.0)] if self.profiles_of else []
            commands = self._commands.give(batch.agent, orders, batch.obeyed)
            resend = is_new and batch.sequence > 1
            self.end.reply(batch.agent, Reply(4, batch.sequence, resend=resend, commands=commands))

    def until(self, check: Callable[[], bool], patience_s: float = 15.0) -> None:
        def pumped() -> bool:
            self.pump()
            return check()

        eventually(pumped, patience_s)

    def stop(self) -> None:
        if self.agent and self._thread:
            self.agent.stop()
            while self._thread.is_alive():
                self.pump()
            self._thread.join()
            self.pump()
            self.agent.close()
            self.agent = None

    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def rank(self, rank: int) -> np.void | None:
        """The latest row of a rank."""
        for batch in reversed(self.batches):
            rows = batch.rank_rows()
            found = rows[rows["rank"] == rank]
            if found.size:
                assert found.size == 1
                return found[0]
        return None

    def state(self, rank: int) -> ProcessState | None:
        row = self.rank(rank)
        return None if row is None else ProcessState(row["state"])

    def events(self, kind: str) -> list[tuple[int, int, str]]:
        return [(e.rank, e.status, e.text) for batch in self.batches for e in batch.events if e.kind == kind]

    def counters(self, rank: int) -> list[int]:
        reported = [batch.record_rows() for batch in self.batches]
        return [int(c) for rows in reported for c in rows[rows["rank"] == rank]["row"]["counter"]]

    def hows(self) -> list[tuple[int, int, int]]:
        """(rank, how, inferred) of the latest waits."""
        rows = self.batches[-1].wait_rows()
        return [(int(r["rank"]), int(r["row"]["how"]), int(r["inferred"])) for r in rows]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    job = Watched(tmp_path)
    yield job
    job.stop()
    job.end.close()


def test_what_ranks_do_is_reported(watched: Watched) -> None:
    # GIVEN two ranks, one waiting for an operation that the other has not entered
    watched.start()
    with RankProcess(watched.folder.path, 0, 2) as first, RankProcess(watched.folder.path, 1, 2) as second:
        for group_rank, rank in enumerate((first, second)):
            assert rank.do(f"comm tp {group_rank} {WORLD}") == "0"
            rank.do("op 0 5")
        first.do("begin 0")
        first.do("issued")
        first.do("wait")
        watched.until(lambda: bool(watched.batches) and watched.hows() == [(0, WaitHow.CALL, 0)])
        # THEN the columns agree with each other
        batch = watched.batches[-1]
        comms = batch.comm_rows()
        assert comms[["rank", "group_rank", "issued", "done"]].tolist() == [(0, 0, 6, 5), (1, 1, 5, 5)]
        assert len(set(comms["comm_id"])) == 1
        assert batch.inflight_rows()["comm"].tolist() == [comms["comm_id"][0]]
        assert batch.wait_rows()["comm"].tolist() == [comms["comm_id"][0]]
        infos = [info for reported in watched.batches for info in reported.comm_info]
        assert [(info.name, info.members) for info in infos] == [("tp", [0, 1])]
        watched.until(lambda: watched.counters(0) == watched.counters(1) == [1, 2, 3, 4, 5])
        row = watched.rank(0)
        assert row is not None
        assert (int(row["pid"]), int(row["world_size"]), int(row["lost_records"])) == (first.pid, 2, 0)
        assert int(row["exit_status"]) == -1
        assert int(row["read_ns"]) >= int(batch.wait_rows()["row"]["since_ns"][0])


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda rank: rank.order("exit 0"), 0),
        (lambda rank: rank.order("exit 7"), 7 << 8),
        (lambda rank: rank.process.kill(), signal.SIGKILL),
        (lambda rank: rank.process.send_signal(signal.SIGTERM), signal.SIGTERM),
    ],
)
def test_exit_is_seen_at_once_with_its_status(
    watched: Watched, end: Callable[[RankProcess], None], status: int
) -> None:
    watched.start()
    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.do(f"comm tp 0 {WORLD}")
        watched.until(lambda: watched.rank(0) is not None)
        rank.do("op 0 3")
        end(rank)
        # WHEN its launcher reaps it only 20 ms later
        os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
        ended_ns = time.monotonic_ns()
        time.sleep(0.02)
        rank.process.wait()
        watched.until(lambda: watched.state(0) == ProcessState.GONE)
    # THEN the status was read in time, once, and the last records too
    assert watched.events("exit") == [(0, status, "")]
    row = watched.rank(0)
    assert row is not None
    assert int(row["exit_status"]) == status
    assert abs(int(row["ended_ns"]) - ended_ns) < 100_000_000
    assert watched.counters(0) == [1, 2, 3]


def test_rank_that_ended_before_the_agent_came(watched: Watched) -> None:
    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.do(f"comm tp 0 {WORLD}")
        rank.do("op 0 3")
    watched.start()
    watched.until(lambda: watched.state(0) == ProcessState.GONE and len(watched.counters(0)) == 3)
    assert watched.events("exit") == [(0, -1, "")]


def test_rank_that_is_reaped_while_the_agent_takes_it_up(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a rank that ends and is reaped right after the agent has got hold of it
    open_pidfd = os.pidfd_open
    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.do(f"comm tp 0 {WORLD}")

        def open_late(pid: int, flags: int = 0) -> int:
            fd = open_pidfd(pid, flags)
            if pid == rank.pid:
                rank.process.kill()
                rank.process.wait()
            return fd

        monkeypatch.setattr("os.pidfd_open", open_late)
        watched.start()
        watched.until(lambda: watched.state(0) == ProcessState.GONE)
    # THEN its status is known, where the kernel keeps it
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    watched.until(lambda: watched.events("exit") == [(0, signal.SIGKILL if release >= (6, 15) else -1, "")])


def test_stopped_rank(watched: Watched) -> None:
    watched.start()
    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.process.send_signal(signal.SIGSTOP)
        watched.until(lambda: watched.state(0) == ProcessState.STOPPED)
        rank.process.send_signal(signal.SIGCONT)
        watched.until(lambda: watched.state(0) == ProcessState.SLEEPING)


def test_wait_on_a_future_is_inferred(watched: Watched) -> None:
    # GIVEN an op whose future was taken, and a main thread that sleeps in a futex
    watched.start()
    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.do(f"comm dp 0 {WORLD}")
        rank.do(f"begin 0 {int(Flag.FUTURE_TAKEN)}")
        rank.do("issued")
        rank.do("lock")
        watched.until(lambda: bool(watched.batches) and watched.hows() == [(0, WaitHow.FUTURE, 1)])


def test_call_that_does_not_return_is_inferred(watched: Watched) -> None:
    watched.start()
    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.do(f"comm dp 0 {WORLD}")
        rank.do("begin 0")
        watched.until(lambda: bool(watched.batches) and watched.hows() == [(0, WaitHow.ENTRY, 1)])


def test_rank_that_writes_is_busy(watched: Watched, tmp_path: Path) -> None:
    watched.start()
    with RankProcess(watched.folder.path, 0, 1) as rank:
        deadline_s = time.monotonic() + 15

        def busy() -> bool:
            assert time.monotonic() < deadline_s
            rank.do(f"write 300000 {tmp_path}/file")
            row = watched.rank(0)
            return row is not None and bool(row["busy"])

        watched.until(busy)
        watched.until(lambda: (row := watched.rank(0)) is not None and not row["busy"])


def test_rank_whose_children_work_is_busy(watched: Watched) -> None:
    watched.closely = True
    watched.start()
    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.do("child")
        try:
            watched.until(lambda: (row := watched.rank(0)) is not None and bool(row["busy"]))
        finally:
            for child in living_children(rank.pid):
                os.kill(child, signal.SIGKILL)


def test_a_doubt_about_connections_asks_for_nothing_else(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an agent that is asked to look at connections more often, and a healthy rank
    asked, polls = list[bool](), list[bool]()
    rows, refresh = Connections.rows, Node.refresh

    def rows_noted(
        self: Connections, watches: Sequence[RankWatch], *, closely: bool, every_s: float
    ) -> np.ndarray[Any, Any]:
        asked.append(closely)
        return rows(self, watches, closely=closely, every_s=every_s)

    def refresh_noted(self: Node, *, deep: bool) -> None:
        polls.append(deep)
        refresh(self, deep=deep)

    monkeypatch.setattr(Connections, "rows", rows_noted)
    monkeypatch.setattr(Node, "refresh", refresh_noted)
    watched.start()
    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.do(f"comm dp 0 {WORLD}")
        watched.until(lambda: watched.rank(0) is not None)
        assert not any(asked)
        watched.connections = True
        # THEN it does so, and looks at the rank as before
        watched.until(lambda: any(asked))
        assert not any(polls)
        watched.connections = False
        watched.until(lambda: not asked[-1])


def test_helper_that_inherited_the_rank_is_not_the_rank(watched: Watched) -> None:
    # GIVEN a helper that is older here, but has no communicator
    watched.start()
    with RankProcess(watched.folder.path, 0, 1) as helper, RankProcess(watched.folder.path, 0, 1) as rank:
        watched.until(lambda: (row := watched.rank(0)) is not None and int(row["pid"]) == helper.pid)
        rank.do(f"comm dp 0 {WORLD}")
        watched.until(lambda: (row := watched.rank(0)) is not None and int(row["pid"]) == rank.pid)
    assert watched.batches[-1].node_ranks == 1


def test_restarted_rank_follows_the_dead_one(watched: Watched) -> None:
    watched.start()
    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.do(f"comm dp 0 {WORLD}")
        watched.until(lambda: watched.rank(0) is not None)
    watched.until(lambda: watched.state(0) == ProcessState.GONE)
    with RankProcess(watched.folder.path, 0, 1, "--restart", "1") as again:
        watched.until(lambda: (row := watched.rank(0)) is not None and int(row["pid"]) == again.pid)
        assert watched.state(0) != ProcessState.GONE


def test_stacks_are_read_when_asked(watched: Watched) -> None:
    watched.start()
    watched.stacks_of = [0]
    with RankProcess(watched.folder.path, 0, 1):
        watched.until(lambda: bool(watched.events("stacks")))
    stacks = next(e for batch in watched.batches for e in batch.events if e.kind == "stacks").stacks
    assert stacks[0].main
    assert any("ring_writer.py" in frame for frame in stacks[0].frames)


def test_a_rank_is_sampled_when_asked(watched: Watched) -> None:
    watched.start()
    watched.profiles_of = [0]
    with RankProcess(watched.folder.path, 0, 1):
        watched.until(lambda: bool(watched.events("profile")))
    stacks = next(e for batch in watched.batches for e in batch.events if e.kind == "profile").stacks
    assert sum(stack.share for stack in stacks) == pytest.approx(1.0)
    assert all(stack.main and "ring_writer.py" in stack.frames[-2] for stack in stacks)


def test_what_a_process_that_computes_and_sleeps_is_found_in() -> None:
    code = "import time\ndef doze():\n    time.sleep(0.03)\nprint(flush=True)\nwhile True:\n    doze()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stacks = profile(process.pid, 2.0)
        process.kill()
    assert sum(stack.share for stack in stacks if stack.frames[0].startswith("doze")) > 0.8
    assert profile(process.pid, 1.0) == []  # it is gone


def test_stacks_of_a_stopped_process(tmp_path: Path) -> None:
    with RankProcess(tmp_path) as rank:
        rank.process.send_signal(signal.SIGSTOP)
        eventually(lambda: b"\nState:\tT" in Path(f"/proc/{rank.pid}/status").read_bytes())
        assert any("ring_writer.py" in frame for frame in read_stacks(rank.pid)[0].frames)
        assert b"\nState:\tT" in Path(f"/proc/{rank.pid}/status").read_bytes()


def test_stacks_that_cannot_be_read_are_one_sentence() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        with pytest.raises(StacksRefusedError, match="py-spy cannot read"):
            read_stacks(child.pid)
        child.kill()
    with pytest.raises(StacksRefusedError, match="has ended"):
        read_stacks(child.pid)


def test_bad_rings_are_reported_once_and_the_others_are_read(watched: Watched) -> None:
    # GIVEN a foreign file, a newer ring, a short one, and a good one that is cut while it is read
    path = watched.folder.path
    with RankProcess(path, 0, 3) as good, RankProcess(path, 1, 3) as cut, RankProcess(path, 2, 3) as newer:
        (path / "1.ring").write_bytes(b"foreign" * 200_000)
        (path / "2.ring").write_bytes(b"")
        with newer.ring.open("r+b") as file:
            file.seek(8)
            file.write(b"\7")
        watched.start()
        watched.until(lambda: watched.rank(1) is not None)
        os.truncate(cut.ring, 1000)
        watched.until(lambda: len(watched.events("note")) == 4)
        good.do(f"comm dp 0 {WORLD}")
        good.do("op 0 2")
        watched.until(lambda: watched.counters(0) == [1, 2])
    notes = " / ".join(text for _, _, text in watched.events("note"))
    for part in ("1.ring cannot be read: the file does not begin", "2.ring cannot be read: the ring is cut", "newer"):
        assert part in notes
    assert "the ring of rank 1 was cut short" in notes
    # the process behind the cut ring is still watched
    watched.until(lambda: watched.state(1) == ProcessState.GONE)


def test_lost_analyzer_loses_no_event(watched: Watched) -> None:
    # GIVEN a job whose analyzer is cut off while a rank dies
    end = InProcessAnalyzerEnd()
    agent = Agent(watched.folder, end.connect(), stay=True)

    def snapshot() -> list[Batch]:
        agent.poll_and_report()
        found = [arrival.batch for arrival in end.receive()]
        for batch in found:
            end.reply(batch.agent, Reply(2, batch.sequence))
        agent._hear()
        return found

    with RankProcess(watched.folder.path, 0, 1) as rank:
        rank.do(f"comm dp 0 {WORLD}")
        rank.do("op 0 2")
        first = snapshot()
        end.cut = True
        snapshot()
        rank.do("op 0 2")
    for _ in range(3):
        snapshot()
    # WHEN it is back after some time
    end.cut = False
    time.sleep(3.1)
    later = [batch for _ in range(3) for batch in snapshot()]
    # THEN nothing that is reported once is missing, in order and once
    counters = [int(c) for batch in first + later for c in batch.record_rows()["row"]["counter"]]
    assert counters == [1, 2, 3, 4]
    assert [event.kind for batch in later for event in batch.events] == ["exit"]
    assert [batch.sequence for batch in first + later] == list(range(1, len(first + later) + 1))
    assert later[-1].rank_rows()["state"].tolist() == [ProcessState.GONE]
    agent.close()


def test_agent_ends_with_its_ranks(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichrank.agent.agent.GRACE_S", 0.3)
    with RankProcess(watched.folder.path, 0, 1):
        watched.start(stay=False)
        watched.until(lambda: watched.rank(0) is not None)
    watched.until(lambda: not watched.is_running())
    watched.until(lambda: watched.end.agents() == [])
    assert watched.events("exit") in ([(0, signal.SIGKILL, "")], [(0, -1, "")])  # reaped at once: from Linux 6.15 on


def test_agent_imports_nothing_heavy() -> None:
    heavy = "[m for m in ('torch', 'rich', 'scipy', 'click', 'subprocess', 'tempfile', 'asyncio') if m in sys.modules]"
    program = f"import sys, whichrank.server.agent_process; print({heavy})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
