"""A rank that the kernel ends for lack of memory, and one that somebody kills: only the first has no memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rank_process import RankProcess, eventually

from whichrank.agent.memory import OomWatch
from whichrank.agent.node import Node
from whichrank.agent.outbox import Outbox
from whichrank.demo.strikes import memory_cgroup
from whichrank.model.telemetry import Event
from whichrank.ring.folder import JobFolder

pytestmark = pytest.mark.integration
GROWING = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ring_writer import RingWriter
writer = RingWriter(Path(sys.argv[2]) / f"{os.getpid()}.ring", 0, 1)
print("ready", flush=True)
sys.stdin.readline()
blocks = []
while True:
    blocks.append(b"x" * (8 << 20))
"""


def told_end(node: Node, outbox: Outbox) -> Event:
    found: list[Event] = []

    def ended() -> bool:
        node.refresh(deep=False)
        found.extend(event for event in outbox._events if event.kind == "exit")
        return bool(found)

    eventually(ended)
    return found[0]


def test_rank_that_ran_out_of_memory(tmp_path: Path) -> None:
    # GIVEN a rank in a memory cgroup that is too small
    try:
        cgroup = memory_cgroup(64 << 20)
    except OSError as error:
        pytest.skip(f"memory cgroups are not writable: {error}")
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    unit = str(Path(__file__).parents[1] / "unit")
    command = [sys.executable, "-c", GROWING, unit, str(folder.path)]
    node = Node(folder, outbox := Outbox())
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdin is not None
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
        cgroup.add(rank.pid)
        node.refresh(deep=False)
        # WHEN it allocates until the kernel ends it
        rank.stdin.write("go\n")
        rank.stdin.flush()
        event = told_end(node, outbox)
    node.close()
    cgroup.close()
    # THEN its end says why
    assert event.status == signal.SIGKILL
    assert "out of memory" in event.text


@pytest.mark.parametrize(("number", "rises", "told"), [(9, False, False), (9, True, True), (15, True, False)])
def test_only_sigkill_with_a_risen_count(tmp_path: Path, number: int, rises: bool, told: bool) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("oom_kill 0\n")
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    node = Node(folder, outbox := Outbox(), OomWatch(vmstat))
    with RankProcess(folder.path, 0, 1) as rank:
        node.refresh(deep=False)
        if rises:
            vmstat.write_text("oom_kill 1\n")
        rank.process.send_signal(number)
        event = told_end(node, outbox)
    node.close()
    assert event.status == number
    assert ("out of memory" in event.text) is told
