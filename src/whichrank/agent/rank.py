"""One ring and the process behind it: read together, so that both are of one moment.

The process is held by a pidfd, which becomes readable the moment it ends; its exit code stands in /proc for the tens of
milliseconds until the launcher reaps it. After the end the ring is read once more and then kept as it was.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.agent.processes import (
    IoSnapshot,
    ProcessSnapshot,
    ProcessStat,
    ancestors_of,
    cpu_of,
    io_of,
    living_children,
    read_thread,
    reaped_status,
    wait_channel,
)
from whichrank.agent.ringless import NoRing
from whichrank.agent.threads import Subject, forget_ended_threads, training_thread
from whichrank.agent.usage import NO_USAGE, Host, UsageWatch
from whichrank.errors import RingFormatError
from whichrank.model.rows import RECORD, SPLITS_ROW
from whichrank.model.telemetry import CommInfo, ProcessState, WaitChannel
from whichrank.ring.reader import RingReader, RingSnapshot, Rows, Scratch

BUSY_WINDOW_NS: Final = 1_000_000_000
USAGE_EVERY_NS: Final = 2_000_000_000
BUSY_WRITTEN_BYTES_PER_S: Final = 256 << 10
BUSY_CHILDREN_CPU_NS_PER_S: Final = 50_000_000
UNKNOWN_STATUS: Final = -1
_OVER: Final = frozenset((ProcessState.ZOMBIE, ProcessState.GONE))
_WELL: Final = frozenset((ProcessState.RUNNING, ProcessState.SLEEPING, ProcessState.DISK))
_NO_SPLITS: Final = np.empty(0, SPLITS_ROW)
_UNKNOWN: Final = WaitChannel.UNKNOWN  # Python 3.11 looks members up anew each time, at a microsecond


class RankWatch:
    """Watches the rank whose ring is at `path`, or one of which `no_ring` says who it is.

    Attributes:
        pid: Its process.
        has_ring: It has one; else it is known by its process alone.
        snapshot: The latest look at the ring.
        rank: Its global rank, -1 before it is known.
        comms_changed: Communicators came or went since they were reported.
        ancestors: The pids of its parent, the parent of that and so on, as they were when it was seen first.
        process: The latest look at the process.
        pidfd: Readable once the process has ended; -1 when it has, or where the kernel has none.
        ended_ns: When its end was seen; 0 alive.
        exit_status: As from wait(2), -1 unknown or alive.
        usage: What the node gave to the process, as sampled last.
        usage_ns: When that was; 0 never.
        is_cut: The ring could not be read any more; what was read before is kept.

    Raises:
        RingFormatError: It is no ring, or not yet.
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path, scratch: Scratch, host: Host, no_ring: NoRing | None = None) -> None:
        self.reader = no_ring or RingReader(path, scratch)
        self.has_ring = no_ring is None
        try:
            self.snapshot: RingSnapshot = self.reader.snapshot()
        except BaseException:
            self.reader.close()
            raise
        header = self.snapshot.header[0]
        self.path = path
        self.pid = int(header["pid"])
        self.start_ticks = int(header["pid_start_ticks"])
        self.created_ns = int(header["created_monotonic_ns"])
        self.restart_count = int(header["restart_count"])
        self._stat = ProcessStat(self.pid)
        self.pidfd = self._open_pidfd()  # first of all: it may end at any moment
        self.process: ProcessSnapshot = self._stat.snapshot()
        self.ancestors = ancestors_of(self.pid) if self.process.start_ticks == self.start_ticks else []
        self.main_channel = WaitChannel.UNKNOWN
        self.ended_ns = 0
        self.exit_status = UNKNOWN_STATUS
        self.is_cut = False
        self.busy = False
        self.usage = NO_USAGE
        self.usage_ns = 0
        self._usage_watch = UsageWatch(self.pid, host)
        self.io = IoSnapshot(0, 0)
        self.children_cpu_ns = 0
        self._comm_ids = np.zeros((1, 256), np.uint64)  # by epoch and slot; the last row, for epochs not seen, is zero
        self._busy_sample: tuple[int, int, dict[int, int], int] | None = None
        self._comm_versions = b""
        self.rank = -1
        self.comms_changed = True
        self._splits_seen = self._splits_reported = self._splits_sending = 0
        self._note_snapshot()

    @property
    def has_communicators(self) -> bool:
        """Whether it ever made a process group, as a helper process that inherited RANK does not."""
        return bool(self.snapshot.header["init_ns"][0])

    def refresh(self, *, deep: bool) -> None:
        """Look again at process and ring; `deep` also at its children and at where the thread that trains sleeps."""
        if self.ended_ns:
            if self.process.state == ProcessState.ZOMBIE:
                self._bury()
            return
        self.process = self._stat.snapshot()
        if self._is_over():
            self._note_end()
        else:
            state = self.process.state
            self.main_channel = self._channel(state) if deep else _UNKNOWN
            self._sample_busy(deep)
            self._sample_usage()
        self._read()
        if deep and not self.ended_ns:
            forget_ended_threads(self.pid, self.snapshot)

    def note_end_if_over(self) -> None:
        """Look at the process only: its exit code is readable for a moment."""
        now = self._stat.snapshot()
        if now.state in (ProcessState.ZOMBIE, ProcessState.GONE):
            self.refresh(deep=False)

    def subject(self) -> Subject:
        """The rank with the thread of it that trains, as of the latest snapshot."""
        return Subject(self.rank, self.pid, training_thread(self.pid, self.snapshot, self.reader.step_tid()))

    def is_well(self) -> bool:
        """Whether it runs as a rank does in the middle of a job, as of the latest snapshot."""
        header = self.snapshot.header
        is_whole = self.has_ring and not self.is_cut and self.rank >= 0 and self.has_communicators
        has_marks = header["closed_ns"][0] or header["exception_ns"][0]
        return is_whole and not has_marks and not self.ended_ns and self.process.state in _WELL

    def stat_fd(self) -> int:
        """/proc/PID/stat, open; -1 once it has ended."""
        return self._stat.fileno()

    def no_memory_kills(self) -> bool:
        """Whether its memory cgroup says that the kernel has killed none of its members."""
        return self._usage_watch.memory.none()

    def records(self, limit: int) -> Rows:
        """New completed records, see `RingReader.records`."""
        if not self.is_cut:
            try:
                return self.reader.records(limit)
            except (RingFormatError, OSError):
                self.is_cut = True
        return np.empty(0, RECORD)

    def backlog(self) -> int:
        """How many records have come since they were read last; 0 where that cannot be known any more."""
        if not self.is_cut:
            try:
                return self.reader.backlog()
            except (RingFormatError, OSError):
                self.is_cut = True
        return 0

    def splits(self, *, closely: bool) -> Rows:
        """What its latest all-to-alls send to whom and expect of whom, if that is news; else nothing.

        Only of a rank that has ended or, if it is looked at closely, begins no more of them: they are many.
        """
        head, before, self._splits_seen = self.snapshot.splits_head, self._splits_seen, self.snapshot.splits_head
        self._splits_sending = self._splits_reported
        if head == self._splits_reported or not (self.ended_ns or (closely and head == before)) or self.is_cut:
            return _NO_SPLITS
        try:
            rows = self.reader.splits()
        except (RingFormatError, OSError):
            self.is_cut = True
            return _NO_SPLITS
        self._splits_sending = head
        return rows

    def note_reported(self) -> None:
        """The analyzer was sent what `splits` returned last."""
        self._splits_reported = self._splits_sending

    def report_again(self) -> None:
        """The analyzer knows nothing of what was reported."""
        self._splits_reported = 0

    def comm_ids(self, slots: NDArray[np.uint16], epochs: NDArray[np.uint8]) -> NDArray[np.uint64]:
        """Communicators by slot and epoch, 0 where they came and went between two snapshots."""
        not_seen = np.intp(len(self._comm_ids) - 1)
        ids: NDArray[np.uint64] = self._comm_ids[np.minimum(epochs, not_seen), np.minimum(slots, 255)]
        return ids

    def comm_info(self, comm: np.void) -> CommInfo:
        """What stays the same of a communicator.

        Raises:
            RingFormatError: The ring was cut short.
        """
        return CommInfo(
            int(comm["comm_id"]),
            _text(comm["name"]),
            _text(comm["desc"]),
            _text(comm["backend"]),
            int(comm["size"]),
            int(comm["generation"]),
            self.reader.members(comm),
        )

    def close(self) -> None:
        """Let go of ring and process."""
        self.reader.close()
        self._stat.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def _read(self) -> None:
        if self.is_cut:
            return
        try:
            self.snapshot = self.reader.snapshot()
        except (RingFormatError, OSError):
            self.is_cut = True
            return
        self._note_snapshot()

    def _note_snapshot(self) -> None:
        self.rank = int(self.snapshot.header["rank"][0])
        comms, slots = self.snapshot.comms, self.snapshot.comm_slots
        versions = comms["version"].tobytes()
        if versions != self._comm_versions:
            self.comms_changed = True
            self._comm_versions = versions
            epochs = comms["epoch"] & 0xFF
            missing = int(epochs.max(initial=0)) + 2 - len(self._comm_ids)
            if missing > 0:
                self._comm_ids = np.concatenate([self._comm_ids, np.zeros((missing, 256), np.uint64)])
            self._comm_ids[epochs, slots] = comms["comm_id"]

    def _open_pidfd(self) -> int:
        if self._stat.snapshot().start_ticks != self.start_ticks:
            return -1  # another process has got the pid
        try:
            fd = os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            return -1
        now = self._stat.snapshot()
        if now.start_ticks == self.start_ticks or now.state == ProcessState.GONE:  # it may just have been reaped
            return fd
        os.close(fd)
        return -1

    def _channel(self, state: ProcessState) -> WaitChannel:
        """Where the thread that trains sleeps."""
        tid = self.subject().tid
        if tid in (0, self.pid):
            return wait_channel(self.pid, self.pid, state)
        return read_thread(self.pid, tid).channel

    def _is_over(self) -> bool:
        snapshot = self.process
        is_other = self.start_ticks != 0 and snapshot.start_ticks != self.start_ticks
        return snapshot.state in _OVER or is_other

    def _note_end(self) -> None:
        self.ended_ns = time.monotonic_ns()
        self.busy = False
        self.main_channel = WaitChannel.UNKNOWN
        if self.process.state == ProcessState.ZOMBIE and self.process.start_ticks == self.start_ticks:
            self.exit_status = self.process.exit_status
        else:
            self._bury()
            if self.pidfd >= 0:
                self.exit_status = reaped_status(self.pidfd)
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def _bury(self) -> None:
        """A zombie stays one until it is reaped; then the pid may be another's."""
        if self._stat.snapshot().state != ProcessState.ZOMBIE:
            self.process = self.process._replace(state=ProcessState.GONE)
            self._stat.close()

    def _sample_usage(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self.usage_ns >= USAGE_EVERY_NS:
            tid = self.subject().tid
            self.usage, self.usage_ns = self._usage_watch.sample(self.process, self.io, tid), now_ns

    def _sample_busy(self, deep: bool) -> None:
        """Over a second, so that the rate of snapshots does not matter. Children are read on suspicion only."""
        now_ns = time.monotonic_ns()
        sample = self._busy_sample
        if sample and now_ns - sample[0] < BUSY_WINDOW_NS:
            return
        self.io = io_of(self.pid)
        children = cpu_of(living_children(self.pid)) if deep else {}
        ended = self.process.children_cpu_ns
        self.children_cpu_ns = ended + sum(children.values())
        self._busy_sample = (now_ns, self.io.written_bytes, children, ended)
        if sample is None:
            return
        then_ns, written_then, children_then, ended_then = sample
        seconds = (now_ns - then_ns) / 1e9
        used_ns = sum(cpu_ns - children_then[pid] for pid, cpu_ns in children.items() if pid in children_then)
        # A child that ended brings the CPU time of its whole life: count it only if we never saw it alive.
        if not children_then:
            used_ns += ended - ended_then
        self.busy = (
            self.io.written_bytes - written_then >= BUSY_WRITTEN_BYTES_PER_S * seconds
            or used_ns >= BUSY_CHILDREN_CPU_NS_PER_S * seconds
        )


def _text(field: bytes) -> str:
    return field.decode("utf-8", "replace")
