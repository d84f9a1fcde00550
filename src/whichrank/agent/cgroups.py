"""Where the control groups of a process are, and what they say, in both versions. What cannot be read is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from whichrank.agent.processes import read

NO_LIMIT: Final = float("inf")
_MOUNTINFO: Final = Path("/proc/self/mountinfo")


class CgroupMounts:
    """Where control groups are mounted.

    Attributes:
        v1: Folder of each controller of version 1.
        v2: Folder of the unified hierarchy, None if there is none.
    """

    def __init__(self, mountinfo: str) -> None:
        self.v1: dict[str, Path] = {}
        self.v2: Path | None = None
        self._root: dict[Path, str] = {}
        for line in mountinfo.splitlines():
            before, _, after = line.partition(" - ")
            fields, kinds = before.split(), after.split()
            if len(fields) < 5 or len(kinds) < 3:
                continue
            folder = Path(fields[4].encode().decode("unicode_escape"))
            self._root[folder] = fields[3].rstrip("/")  # in a container, perhaps its own group
            if kinds[0] == "cgroup":
                self.v1.update(dict.fromkeys(kinds[2].split(","), folder))
            elif kinds[0] == "cgroup2":
                self.v2 = folder

    @classmethod
    def here(cls) -> CgroupMounts:
        """As this process sees them."""
        try:
            return cls(_MOUNTINFO.read_text())
        except OSError:
            return cls("")

    def groups_of(self, membership: str, controller: str) -> list[Path]:
        """Folders of the groups of a controller that hold a process, from its own up to the root.

        Args:
            membership: Content of /proc/PID/cgroup.
            controller: `cpu` or `memory`.
        """
        inside = _inside(membership)
        mount, name = self.v1.get(controller), inside.get(controller)
        if mount is None or name is None:
            mount, name = self.v2, inside.get("")
        if mount is None or name is None:
            return []
        root = self._root[mount]
        own = mount / (name[len(root) :] if f"{name}/".startswith(f"{root}/") else name).lstrip("/")
        return [folder for folder in (own, *own.parents) if folder == mount or mount in folder.parents]

    def hides(self, membership: str, controller: str) -> bool:
        """Whether a process is in a group of its own that cannot be read from here, as in another mount namespace.

        Args:
            membership: Content of /proc/PID/cgroup.
            controller: `cpu` or `memory`.
        """
        inside = _inside(membership)
        name = inside.get(controller, inside.get("", "/"))
        return name != "/" and not any(folder.is_dir() for folder in self.groups_of(membership, controller)[:1])


def _inside(membership: str) -> dict[str, str]:
    """By controller, the group that holds a process; the unified hierarchy has no name."""
    inside: dict[str, str] = {}
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inside.update(dict.fromkeys(controllers.split(","), path))
    return inside


def limit_of(group: Path) -> float:
    """Cores that a control group may use; infinite if it has no limit."""
    most = read(str(group / "cpu.max")).split()
    if len(most) == 2:
        return int(most[0]) / int(most[1]) if most[0] != b"max" else NO_LIMIT
    quota, period = read(str(group / "cpu.cfs_quota_us")), read(str(group / "cpu.cfs_period_us"))
    return int(quota) / int(period) if quota and period and int(quota) > 0 and int(period) > 0 else NO_LIMIT


def throttled_ns_of(group: Path) -> int:
    """How long a control group was throttled."""
    stat = _fields(group / "cpu.stat")
    return stat.get(b"throttled_time", 0) or stat.get(b"throttled_usec", 0) * 1000


def memory_kills_of(group: Path) -> int | None:
    """Members that the kernel killed for lack of memory, the node's or the group's; None where it does not say."""
    for file in ("memory.events", "memory.oom_control"):
        kills = _fields(group / file).get(b"oom_kill")
        if kills is not None:
            return kills
    return None


def _fields(path: Path) -> dict[bytes, int]:
    pairs = (line.split() for line in read(str(path)).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
