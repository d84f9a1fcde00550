"""What a node gives to a rank: CPU time and the wait for it, limits, memory and files. Every two seconds per rank.

The main thread's `schedstat` says how long it ran and how long it was ready and got no CPU. The control groups that
hold the process, up to the root, say how many cores they may use and how long they were throttled; both versions are
read. All of it is there without privileges. What cannot be read is zero, and a limit that is not there is infinite.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from whichrank.agent.processes import io_counter, read

NO_LIMIT: Final = float("inf")
_MOUNTINFO: Final = Path("/proc/self/mountinfo")


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


NO_USAGE: Final = Usage(0, 0, 0, NO_LIMIT, 0, 0, 0)


class CpuMounts:
    """Where the control groups for CPU time are mounted.

    Attributes:
        v1: Folder of the `cpu` controller, None if there is none.
        v2: Folder of the unified hierarchy.
    """

    def __init__(self, mountinfo: str) -> None:
        self.v1: Path | None = None
        self.v2: Path | None = None
        for line in mountinfo.splitlines():
            before, _, after = line.partition(" - ")
            fields, kinds = before.split(), after.split()
            if len(fields) < 5 or len(kinds) < 3:
                continue
            folder = Path(fields[4].encode().decode("unicode_escape"))
            if kinds[0] == "cgroup" and "cpu" in kinds[2].split(","):
                self.v1 = folder
            elif kinds[0] == "cgroup2":
                self.v2 = folder

    @classmethod
    def here(cls) -> CpuMounts:
        """As this process sees them."""
        try:
            return cls(_MOUNTINFO.read_text())
        except OSError:
            return cls("")

    def groups_of(self, membership: str) -> list[Path]:
        """Folders of the groups that limit a process, from its own up to the root.

        Args:
            membership: Content of /proc/PID/cgroup.
        """
        v1: str | None = None
        v2: str | None = None
        for line in membership.splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if "cpu" in controllers.split(","):
                v1 = path
            elif number == "0" and not controllers:
                v2 = path
        mount, inside = (self.v1, v1) if self.v1 is not None and v1 is not None else (self.v2, v2)
        if mount is None or inside is None:
            return []
        own = mount / inside.lstrip("/")
        return [folder for folder in (own, *own.parents) if folder == mount or mount in folder.parents]


def limit_of(group: Path) -> float:
    """Cores that a control group may use; infinite if it has no limit."""
    most = read(str(group / "cpu.max")).split()
    if len(most) == 2:
        return int(most[0]) / int(most[1]) if most[0] != b"max" else NO_LIMIT
    quota, period = read(str(group / "cpu.cfs_quota_us")), read(str(group / "cpu.cfs_period_us"))
    return int(quota) / int(period) if quota and period and int(quota) > 0 and int(period) > 0 else NO_LIMIT


def throttled_ns_of(group: Path) -> int:
    """How long a control group was throttled."""
    for line in read(str(group / "cpu.stat")).splitlines():
        name, _, value = line.partition(b" ")
        if name == b"throttled_time":
            return int(value)
        if name == b"throttled_usec":
            return int(value) * 1000
    return 0


class UsageWatch:
    """Samples one process.

    Args:
        pid: Which one.
        mounts: Where control groups are.
    """

    def __init__(self, pid: int, mounts: CpuMounts) -> None:
        self._pid = pid
        self._mounts = mounts
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
            self._groups = self._mounts.groups_of(membership.decode(errors="replace"))
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
        )
