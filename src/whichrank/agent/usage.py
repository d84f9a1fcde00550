"""What a node gives to a rank: CPU time and the wait for it, limits, memory and files. Every two seconds per rank.

The main thread's `schedstat` says how long it ran and how long it was ready and got no CPU. The control groups that
hold the process, up to the root, say how many cores they may use and how long they were throttled. /proc/stat says how
much of the node's CPU time a hypervisor gave to others. All of it is there without privileges. What cannot be read is
zero, and a limit that is not there is infinite.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from whichrank.agent.cgroups import NO_LIMIT, CgroupMounts, limit_of, throttled_ns_of
from whichrank.agent.memory import GroupKills
from whichrank.agent.processes import io_counter, read


class Usage(NamedTuple):
    """One sample. Counters since the process (or the group) began."""

    cpu_ns: int
    """The main thread ran."""
    delay_ns: int
    """The main thread was ready and waited for a CPU."""
    throttled_ns: int
    """Its control groups were throttled, added up."""
    limit_cores: float
    """The least of their limits."""
    allowed_cores: int
    """On which it may run."""
    major_faults: int
    read_bytes: int
    """From storage."""
    stolen_ns: int
    """On average over the node's cores: one was wanted, and the hypervisor gave it to another machine."""


NO_USAGE: Final = Usage(0, 0, 0, NO_LIMIT, 0, 0, 0, 0)
_STAT: Final = Path("/proc/stat")
_STOLEN: Final = 8
"""The field of /proc/stat, in clock ticks."""
_LOOK_EVERY_NS: Final = 1_000_000_000


class Host:
    """What the ranks of a node share.

    Attributes:
        mounts: Where control groups are.
    """

    def __init__(self, stat: Path = _STAT) -> None:
        self.mounts = CgroupMounts.here()
        self._stat = stat
        self._cores = os.cpu_count() or 1
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._looked_ns = self._stolen_ns = 0

    def stolen_ns(self) -> int:
        """See `Usage`; read once a second at most."""
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns >= _LOOK_EVERY_NS:
            self._looked_ns = now_ns
            fields = read(str(self._stat)).partition(b"\n")[0].split()
            if len(fields) > _STOLEN and fields[_STOLEN].isdigit():
                self._stolen_ns = int(fields[_STOLEN]) * self._tick_ns // self._cores
        return self._stolen_ns


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

    def sample(self, major_faults: int = 0) -> Usage:
        """As it is now.

        Args:
            major_faults: From /proc/PID/stat, which the caller has read.
        """
        membership = read(f"/proc/{self._pid}/cgroup")
        if membership != self._membership:
            self._membership = membership
            text = membership.decode(errors="replace")
            self._groups = self._host.mounts.groups_of(text, "cpu")
            self.memory.enter(self._host.mounts.groups_of(text, "memory")[:1])
        ran = read(f"/proc/{self._pid}/schedstat").split()
        limits = [(limit_of(group), group) for group in self._groups]
        limited = [group for limit, group in limits if limit < NO_LIMIT]
        try:
            allowed = len(os.sched_getaffinity(self._pid))
        except OSError:
            allowed = 0
        return Usage(
            cpu_ns=int(ran[0]) if len(ran) > 1 else 0,
            delay_ns=int(ran[1]) if len(ran) > 1 else 0,
            throttled_ns=sum(map(throttled_ns_of, limited)),
            limit_cores=min((limit for limit, _ in limits), default=NO_LIMIT),
            allowed_cores=allowed,
            major_faults=major_faults,
            read_bytes=io_counter(self._pid, b"read_bytes"),
            stolen_ns=self._host.stolen_ns(),
        )
