"""Which thread of a rank trains.

Most programs train in their main thread; Ray Train, notebooks and thread pools do not. Then the main thread says
nothing of the rank: it waits for the other one. The thread that trains is the one that makes optimizer steps, and where
none are seen the one that has issued the latest operation.

The backward pass of a GPU model issues operations from a thread of torch's own, which has no Python code: it stands for
no line of the program, so it is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from whichrank.agent.processes import read
from whichrank.ring.reader import RingSnapshot

_OF_TORCH: Final = b"pt_"
"""How torch names the threads that it starts: pt_autograd_0, pt_gloo_runloop, pt_nccl_watchdg."""


class Subject(NamedTuple):
    """A rank whose threads are wanted."""

    rank: int
    pid: int
    tid: int = 0
    """The thread that trains, 0 if it is not known."""


def training_thread(pid: int, snapshot: RingSnapshot, step_tid: int) -> int:
    """The thread that trains; 0 if it is not known, or has ended.

    Args:
        pid: The process.
        snapshot: Its ring.
        step_tid: The thread that made the latest optimizer step, 0 none.
    """
    if step_tid and _lives(pid, step_tid):
        return step_tid
    issued = snapshot.comms[snapshot.comms["last_issue_ns"] != 0]
    if not issued.size:
        return 0
    tid = int(issued["last_tid"][issued["last_issue_ns"].argmax()])
    if not tid or not _lives(pid, tid):
        return 0
    return pid if read(f"/proc/{pid}/task/{tid}/comm").startswith(_OF_TORCH) else tid


def forget_ended_threads(pid: int, snapshot: RingSnapshot) -> None:
    """Set to 0 the thread that served a communicator last where it has ended: another one has taken its place.

    Args:
        pid: The process.
        snapshot: Its ring, changed in place.
    """
    tids = snapshot.comms["last_tid"]
    for tid in set(tids.tolist()) - {0, pid}:
        if not _lives(pid, tid):
            tids[tids == tid] = 0


def _lives(pid: int, tid: int) -> bool:
    return Path(f"/proc/{pid}/task/{tid}").exists()
