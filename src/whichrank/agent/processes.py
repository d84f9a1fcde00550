"""What /proc says of a process and its threads.

Everything here may vanish between two reads, so every function answers with "unknown" instead of raising. Counters that
need a privilege which we lack stay zero. The wait channel is a kernel symbol; only its meaning for a diagnosis is
kept, and it is UNKNOWN where the kernel hides it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from whichrank.model.telemetry import ProcessState, WaitChannel

_READ_BYTES: Final = 8192
_REAPED_TRIES: Final = 5
_MOST_ANCESTORS: Final = 16
"""Launchers, wrappers and shells between a rank and the one that started it."""
TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

_STATES: Final = {
    b"R": ProcessState.RUNNING,
    b"S": ProcessState.SLEEPING,
    b"I": ProcessState.SLEEPING,
    b"D": ProcessState.DISK,
    b"T": ProcessState.STOPPED,
    b"t": ProcessState.TRACED,
    b"Z": ProcessState.ZOMBIE,
    b"X": ProcessState.GONE,
}

# linux/pidfd.h: struct pidfd_info, of which we use the first and the last field, and its request.
_PIDFD_INFO: Final = struct.Struct("=Q52xi")
_PIDFD_INFO_EXIT: Final = 1 << 3
_PIDFD_GET_INFO: Final = 3 << 30 | _PIDFD_INFO.size << 16 | 0xFF << 8 | 11

# Kernel symbols of several versions; the first beginning that fits decides.
_CHANNELS: Final = (
    ("futex", WaitChannel.LOCK),
    ("hrtimer_nanosleep", WaitChannel.SLEEP),
    ("do_nanosleep", WaitChannel.SLEEP),
    ("clock_nanosleep", WaitChannel.SLEEP),
    # A nanosleep that was interrupted, by py-spy for instance, goes on through tail calls that leave no other name.
    *((name, WaitChannel.SLEEP) for name in ("do_syscall_64", "restart_syscall", "invoke_syscall")),
    *(
        (name, WaitChannel.IO)
        for name in ("ep_poll", "do_epoll", "poll_schedule", "do_poll", "do_sys_poll", "do_select")
    ),
    *(
        (name, WaitChannel.IO)
        for name in ("pipe_", "anon_pipe", "sk_", "wait_woken", "unix_stream", "inet_csk", "tcp_")
    ),
    *((name, WaitChannel.IO) for name in ("eventfd", "__skb_wait", "skb_", "n_tty_read", "io_cqring_wait")),
    *((name, WaitChannel.DISK) for name in ("folio_wait", "wait_on_page", "wait_on_folio", "io_schedule", "rq_qos")),
    *((name, WaitChannel.DISK) for name in ("jbd2", "ext4", "xfs", "btrfs", "nfs", "rpc_wait", "blk_", "request_wait")),
    *((name, WaitChannel.DISK) for name in ("balance_dirty", "wb_wait", "fuse", "request_wait_answer", "submit_bio")),
)


class ProcessSnapshot(NamedTuple):
    """One reading of /proc/PID/stat."""

    state: ProcessState
    start_ticks: int
    cpu_ns: int
    children_cpu_ns: int
    """Of children that ended and were waited for."""
    exit_status: int
    """As from wait(2); meaningful for a zombie only."""
    major_faults: int = 0
    core: int = -1
    """Where its main thread ran last; -1 unknown."""


class IoSnapshot(NamedTuple):
    """What a process read and wrote; 0 if it cannot be known."""

    written_bytes: int
    """Given to write(2), whatever lay behind: what reaches a device stays zero for tmpfs and for object stores, where
    checkpoints go too."""
    read_bytes: int
    """From storage."""


class ThreadSnapshot(NamedTuple):
    """What one thread does now."""

    state: ProcessState
    channel: WaitChannel
    cpu_ns: int
    """-1 if it cannot be known."""


_UNKNOWN: Final = ProcessState.UNKNOWN
GONE: Final = ProcessSnapshot(ProcessState.GONE, 0, 0, 0, -1)


def read_process(pid: int) -> ProcessSnapshot:
    """State, age and CPU time of a process; `GONE` if there is none of this pid."""
    return _process_snapshot(_fields(read(f"/proc/{pid}/stat")))


class ProcessStat:
    """/proc/PID/stat held open: half the cost of a snapshot, and never another process that has got the pid since."""

    def __init__(self, pid: int) -> None:
        try:
            self._fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def snapshot(self) -> ProcessSnapshot:
        """As `read_process`."""
        try:
            return _process_snapshot(_fields(os.pread(self._fd, _READ_BYTES, 0))) if self._fd >= 0 else GONE
        except OSError:
            return GONE

    def fileno(self) -> int:
        """The open file, -1 if there is none."""
        return self._fd

    def close(self) -> None:
        """Close it; every snapshot says `GONE` then."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _process_snapshot(fields: list[bytes]) -> ProcessSnapshot:
    if len(fields) < 20:
        return GONE
    return ProcessSnapshot(
        _STATES.get(fields[0], _UNKNOWN),
        int(fields[19]),
        (int(fields[11]) + int(fields[12])) * TICK_NS,
        (int(fields[13]) + int(fields[14])) * TICK_NS,
        int(fields[49]) if len(fields) > 49 else -1,
        int(fields[9]),
        int(fields[36]) if len(fields) > 36 else -1,
    )


def ancestors_of(pid: int) -> list[int]:
    """The pids of its parent, the parent of that and so on, nearest first, without the first process of the machine."""
    found: list[int] = []
    while len(found) < _MOST_ANCESTORS:
        fields = _fields(read(f"/proc/{pid}/stat"))
        pid = int(fields[1]) if len(fields) > 1 else 0
        if pid <= 1 or pid in found:
            break
        found.append(pid)
    return found


def read_thread(pid: int, tid: int) -> ThreadSnapshot:
    """State, wait channel and CPU time of a thread; UNKNOWN if it is gone."""
    task = f"/proc/{pid}/task/{tid}"
    fields = _fields(read(task + "/stat"))
    state = _STATES.get(fields[0], ProcessState.UNKNOWN) if fields else ProcessState.UNKNOWN
    ran = read(task + "/schedstat").split()
    ticks = int(fields[11]) + int(fields[12]) if len(fields) > 12 else None
    cpu_ns = int(ran[0]) if ran else -1 if ticks is None else ticks * TICK_NS
    return ThreadSnapshot(state, wait_channel(pid, tid, state), cpu_ns)


def wait_channel(pid: int, tid: int, state: ProcessState) -> WaitChannel:
    """Where a thread of this state sleeps."""
    if state == ProcessState.RUNNING:
        return WaitChannel.NONE
    if state not in (ProcessState.SLEEPING, ProcessState.DISK):
        return WaitChannel.UNKNOWN
    name = read(f"/proc/{pid}/task/{tid}/wchan").decode("ascii", "replace")
    if name in ("", "0"):
        return WaitChannel.UNKNOWN
    name = name.removeprefix("__")
    for beginning, channel in _CHANNELS:
        if name.startswith(beginning.removeprefix("__")):
            return channel
    return WaitChannel.DISK if state == ProcessState.DISK else WaitChannel.OTHER


def io_of(pid: int) -> IoSnapshot:
    """From /proc/PID/io."""
    fields = read(f"/proc/{pid}/io").split()
    found = dict(zip(fields[::2], fields[1::2], strict=False))
    return IoSnapshot(int(found.get(b"wchar:", 0)), int(found.get(b"read_bytes:", 0)))


def living_children(pid: int) -> list[int]:
    """Pids of the children that the main thread started."""
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


def reaped_status(pidfd: int) -> int:
    """Exit status of a process that was reaped already, as from wait(2); -1 before Linux 6.15, which keeps none.

    A process leaves /proc a moment before its status can be had, so it is asked for some milliseconds.
    """
    for _ in range(_REAPED_TRIES):
        status = _kept_status(pidfd)
        if status >= 0:
            return status
        time.sleep(0.001)
    return -1


def _kept_status(pidfd: int) -> int:
    info = bytearray(_PIDFD_INFO.size)
    _PIDFD_INFO.pack_into(info, 0, _PIDFD_INFO_EXIT, 0)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return -1
    mask, status = _PIDFD_INFO.unpack_from(info)
    return int(status) if mask & _PIDFD_INFO_EXIT else -1


def cpu_of(pids: Iterable[int]) -> dict[int, int]:
    """CPU time in ns of each of the processes and the children that it waited for, by pid."""
    polls = ((pid, read_process(pid)) for pid in pids)
    return {
        pid: snapshot.cpu_ns + snapshot.children_cpu_ns
        for pid, snapshot in polls
        if snapshot.state != ProcessState.GONE
    }


def read(path: str) -> bytes:
    """A small file of /proc, empty if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _fields(content: bytes) -> list[bytes]:
    """Fields of a `stat` file from the state on; the name before it may hold anything."""
    return content[content.rfind(b")") + 2 :].split()
