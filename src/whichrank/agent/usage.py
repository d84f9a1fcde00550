"""What a node gives to a rank: CPU time and the wait for it, limits, memory and files. Every two seconds per rank.

The `schedstat` of the thread that trains says how long it ran and how long it was ready and got no CPU. The control
groups that hold the process, up to the root, say how many cores they may use and how long they were throttled.
/proc/stat says how much of the node's CPU time a hypervisor gave to others, /proc/pressure how long somebody waited for
memory or storage, and cpufreq how fast the core runs. All of it is there without privileges. What cannot be read is
zero, and a limit that is not there is infinite.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from whichrank.agent.cgroups import NO_LIMIT, CgroupMounts, limit_of, throttled_ns_of
from whichrank.agent.memory import GroupKills
from whichrank.agent.processes import IoSnapshot, ProcessSnapshot, read


class Usage(NamedTuple):
    """One sample. Counters since the process (or the group) began."""

    cpu_ns: int
    """The thread that trains ran."""
    delay_ns: int
    """The thread that trains was ready and waited for a CPU."""
    throttled_ns: int
    """Its control groups were throttled, added up."""
    limit_cores: float
    """The least of their limits; NaN where they cannot be read."""
    allowed_cores: int
    """On which it may run."""
    major_faults: int
    read_bytes: int
    """From storage."""
    node_ns: int
    """The node's cores worked, on average."""
    stolen_ns: int
    """They would have, and the hypervisor gave them to another machine."""
    memory_stall_ns: int
    """Somebody on the node waited for memory: it was pushed out and read back."""
    io_stall_ns: int
    """Somebody on the node waited for storage."""
    clock_mhz: float
    """Of the core that its main thread ran on last."""


class Shared(NamedTuple):
    """What the ranks of a node share; see `Usage`."""

    node_ns: int
    stolen_ns: int
    memory_stall_ns: int
    io_stall_ns: int


NO_USAGE: Final = Usage(0, 0, 0, NO_LIMIT, 0, 0, 0, 0, 0, 0, 0, 0.0)
_WORKED: Final = (1, 2, 3, 6, 7)
_STOLEN: Final = 8
"""Fields of /proc/stat, in clock ticks: user, nice, system, interrupts of both kinds; stolen."""
_POLL_EVERY_NS: Final = 1_000_000_000


class Host:
    """What the ranks of a node share.

    Attributes:
        mounts: Where control groups are.
    """

    def __init__(self, proc: Path = Path("/proc"), cores: Path = Path("/sys/devices/system/cpu")) -> None:
        self.mounts = CgroupMounts.here()
        self._proc = proc
        self._cores = cores
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
        self._polled_ns = 0
        self._shared = Shared(0, 0, 0, 0)
        self._groups: dict[Path, tuple[float, int]] = {}
        self._groups_ns = 0

    def shared(self) -> Shared:
        """Counters of the node; read once a second at most."""
        now_ns = time.monotonic_ns()
        if now_ns - self._polled_ns >= _POLL_EVERY_NS:
            self._polled_ns = now_ns
            self._shared = Shared(*self._cpu_ns(), self._stall_ns("memory"), self._stall_ns("io"))
        return self._shared

    def group(self, folder: Path) -> tuple[float, int]:
        """Cores that a control group may use, and how long it was throttled; ranks that share it read it once a second.

        Without a limit nothing throttles it.
        """
        now_ns = time.monotonic_ns()
        if now_ns - self._groups_ns >= _POLL_EVERY_NS:
            self._groups_ns = now_ns
            self._groups.clear()
        if folder not in self._groups:
            limit = limit_of(folder)
            self._groups[folder] = limit, throttled_ns_of(folder) if limit < NO_LIMIT else 0
        return self._groups[folder]

    def clock_mhz(self, core: int) -> float:
        """How fast a core runs now; 0 where the kernel does not say. One file, since reading may disturb the core."""
        khz = read(f"{self._cores}/cpu{core}/cpufreq/scaling_cur_freq").strip()
        return int(khz) / 1000 if khz.isdigit() else 0.0

    def _cpu_ns(self) -> tuple[int, int]:
        fields = read(f"{self._proc}/stat").partition(b"\n")[0].split()
        if len(fields) <= _STOLEN or not all(field.isdigit() for field in fields[1:]):
            return self._shared.node_ns, self._shared.stolen_ns
        worked, stolen = sum(int(fields[at]) for at in _WORKED), int(fields[_STOLEN])
        return int(worked * self._tick_ns), int(stolen * self._tick_ns)

    def _stall_ns(self, resource: str) -> int:
        """Of the line "some"; the kernel counts in microseconds."""
        some = read(f"{self._proc}/pressure/{resource}").partition(b"\n")[0]
        total = some.rpartition(b"total=")[2]
        return int(total) * 1000 if some.startswith(b"some ") and total.isdigit() else 0


class UsageWatch:
    """Samples one process.

    Args:
        pid: Which one.
        host: The node that it runs on.

    Attributes:
        memory: Kills in the memory cgroup that it was in when it was sampled last.
    """

    def __init__(self, pid: int, host: Host) -> None:
        self.memory = GroupKills()
        self._pid = pid
        self._host = host
        self._membership = b""
        self._groups: list[Path] = []
        self._is_out_of_sight = False
        self._tid = 0
        self._latest = self._added = (0, 0)

    def sample(self, process: ProcessSnapshot, io: IoSnapshot, tid: int = 0) -> Usage:
        """As it is now.

        Args:
            process: What /proc/PID/stat says, which the caller has read.
            io: The same of /proc/PID/io.
            tid: The thread that trains; 0 the main one.
        """
        membership = read(f"/proc/{self._pid}/cgroup")
        if membership != self._membership:
            self._membership = membership
            text = membership.decode(errors="replace")
            self._groups = self._host.mounts.groups_of(text, "cpu")
            self._is_out_of_sight = self._host.mounts.hides(text, "cpu")
            self.memory.enter(self._host.mounts.groups_of(text, "memory")[:1])
        cpu_ns, delay_ns = self._ran(tid or self._pid)
        groups = [self._host.group(folder) for folder in self._groups]
        try:
            allowed = len(os.sched_getaffinity(self._pid))
        except OSError:
            allowed = 0
        return Usage(
            cpu_ns=cpu_ns,
            delay_ns=delay_ns,
            throttled_ns=sum(throttled_ns for _, throttled_ns in groups),
            limit_cores=math.nan if self._is_out_of_sight else min((limit for limit, _ in groups), default=NO_LIMIT),
            allowed_cores=allowed,
            major_faults=process.major_faults,
            read_bytes=io.read_bytes,
            **self._host.shared()._asdict(),
            clock_mhz=self._host.clock_mhz(process.core),
        )

    def _ran(self, tid: int) -> tuple[int, int]:
        """How long the thread ran and waited for a CPU. Where another thread goes on, its counters go on as one."""
        fields = read(f"/proc/{self._pid}/task/{tid}/schedstat").split()
        now = (int(fields[0]), int(fields[1])) if len(fields) > 1 else (0, 0)
        if tid != self._tid and self._tid:
            (added_cpu, added_delay), (cpu, delay) = self._added, self._latest
            self._added = added_cpu + cpu - now[0], added_delay + delay - now[1]
        self._tid, self._latest = tid, now
        return self._added[0] + now[0], self._added[1] + now[1]
