"""Names and short words for a table: states, waits, durations, communicators."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

from whichrank.model.plain_text import as_name
from whichrank.model.telemetry import ProcessState, WaitChannel
from whichrank.surface.watch.frame import Operation

UNDESCRIBED: Final = ("", "undefined")

_STATES: Final = {
    ProcessState.UNKNOWN: "unknown",
    ProcessState.RUNNING: "running",
    ProcessState.SLEEPING: "sleeping",
    ProcessState.DISK: "disk wait",
    ProcessState.STOPPED: "stopped",
    ProcessState.TRACED: "traced",
    ProcessState.ZOMBIE: "ended",
    ProcessState.GONE: "ended",
}

_WAITS: Final = {
    WaitChannel.UNKNOWN: "",
    WaitChannel.NONE: "on a CPU",
    WaitChannel.LOCK: "lock",
    WaitChannel.SLEEP: "sleep",
    WaitChannel.IO: "I/O",
    WaitChannel.DISK: "disk",
    WaitChannel.OTHER: "other",
}


def printable(text: str) -> str:
    """One line without control characters: names come from the job, and a terminal obeys what it is sent."""
    return as_name(text)


def text_of(field: Any) -> str:
    """A text field of the ring."""
    return printable(bytes(field).decode("utf-8", "replace"))


def state_of(state: ProcessState, ended: bool, exit_status: int) -> str:
    """The state of a process; how it ended, if that is known."""
    if not ended or exit_status < 0:
        return "ended" if ended else _STATES.get(state, "unknown")
    if os.WIFSIGNALED(exit_status):
        number = os.WTERMSIG(exit_status)
        return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"exit {os.waitstatus_to_exitcode(exit_status)}"


_NO_OPERATION: Final = {"remote_call": "remote call", "meeting": "makes a communicator"}
"""What a thread may be blocked on that is no operation."""


def main_wait_of(state: ProcessState, channel: WaitChannel) -> str:
    """What the main thread waits for; a stopped process waits for nothing."""
    return "" if state in (ProcessState.STOPPED, ProcessState.TRACED) else _WAITS.get(channel, "")


def communicator_name(name: str, desc: str) -> str:
    """As verdicts say it: the description without its prefix, else the name."""
    return f"group {name}" if desc in UNDESCRIBED else desc.removeprefix("mesh_")


def operation_text(operation: Operation) -> str:
    """`all_reduce #1204 on tp`, `recv #7 from 3 on pp`, `remote call to 2`, `makes a communicator`."""
    peer = ""
    if operation.peer is not None:
        peer = f" {'from' if operation.kind.startswith('recv') else 'to'} {operation.peer}"
    if operation.counter is None:
        return _NO_OPERATION.get(operation.kind, operation.kind) + peer
    return f"{operation.kind} #{operation.counter}{peer} on {operation.communicator}"


def short_duration(seconds: float) -> str:
    """Seven characters at most: `0.4 s`, `12 s`, `3 min`, `2.5 h`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
