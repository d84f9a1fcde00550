"""Which thread of a rank trains.

Most programs train in their main thread; Ray Train, notebooks and thread pools do not. Then the main thread says
nothing of the rank: it waits for the other one. The thread that trains is the one that makes optimizer steps, and where
none are seen the one that has issued the latest operation.

The backward pass of a GPU model issues operations from a thread of torch's own, which has no Python code: it stands for
no line of the program, so it is left out.
"""

from __future__ import annotations

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
    issued_ns = snapshot.comms["last_issue_ns"]
    latest = issued_ns.argmax() if issued_ns.size else 0
    tid = int(snapshot.comms["last_tid"][latest]) if issued_ns.any() else 0
    if tid in (0, pid):
        return tid
    name = _name_of(pid, tid)
    return pid if name.startswith(_OF_TORCH) else tid if name else 0


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
    return tid == pid or bool(_name_of(pid, tid))


def _name_of(pid: int, tid: int) -> bytes:
    """With a line break behind it; empty if there is no such thread."""
    return read(f"/proc/{pid}/task/{tid}/comm")
