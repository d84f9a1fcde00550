"""A rank that the kernel ends for lack of memory, and one that somebody kills: only the first has no memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rank_process import RankProcess, eventually

from whichrank.agent.cgroups import CgroupMounts
from whichrank.agent.memory import OomWatch
from whichrank.agent.node import Node
from whichrank.agent.outbox import Outbox
from whichrank.model.telemetry import Event
from whichrank.ring.folder import JobFolder
from whichrank.testbed.demo.strikes import memory_cgroup

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


def reported_end(node: Node, outbox: Outbox) -> Event:
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
        cgroup = memory_cgroup(64 << 20, "test-")
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
        event = reported_end(node, outbox)
    node.close()
    cgroup.close()
    # THEN its end says why
    assert event.status == signal.SIGKILL
    assert "out of memory" in event.text


@pytest.mark.parametrize(
    ("number", "rises", "group", "reported"),
    [
        (9, False, None, False),
        (9, True, None, True),
        (15, True, None, False),
        (9, True, "stands", False),
        (9, True, "rises", True),
    ],
)
def test_only_sigkill_with_a_risen_count_that_was_not_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, rises: bool, group: str | None, reported: bool
) -> None:
    # GIVEN a rank, the node's count of kills, and a count of its own group or none
    vmstat, events = tmp_path / "vmstat", own_group(tmp_path) / "memory.events"
    vmstat.write_text("oom_kill 0\n")
    if group:
        events.write_text("oom 9\noom_kill 4\n")
    mounts = CgroupMounts(f"1 1 0:1 / {tmp_path} rw - cgroup2 cgroup2 rw")
    monkeypatch.setattr(CgroupMounts, "here", lambda: mounts)
    folder = JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)
    node = Node(folder, outbox := Outbox(), OomWatch(vmstat))
    with RankProcess(folder.path, 0, 1) as rank:
        node.refresh(deep=False)
        # WHEN counts rise, or do not, and the rank is ended by a signal
        if rises:
            vmstat.write_text("oom_kill 1\n")
        if group == "rises":
            events.write_text("oom 9\noom_kill 5\n")
        rank.process.send_signal(number)
        event = reported_end(node, outbox)
    node.close()
    # THEN memory was the reason only of a SIGKILL with both counts risen, as far as they are known
    assert event.status == number
    assert ("out of memory" in event.text) is reported


def own_group(mount: Path) -> Path:
    """The folder of the group of this process in a unified hierarchy mounted there."""
    unified = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    group = mount / unified.removeprefix("0::").lstrip("/")
    group.mkdir(parents=True, exist_ok=True)
    return group
