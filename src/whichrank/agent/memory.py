"""Did the kernel kill for lack of memory? It counts such kills for the node and for each memory cgroup.

The node's own count (`oom_kill` in /proc/vmstat) rises for both. A rank that ends by SIGKILL while that count has risen
of late was killed for memory, unless the count of its own cgroup is there and has stood still: then it was another's.
"Of late" are some seconds: the count rises first, and a large process needs a while to give its memory back. It says
the reason, never the rank.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

from whichrank.agent.cgroups import memory_kills_of

VMSTAT: Final = Path("/proc/vmstat")
OUT_OF_MEMORY: Final = "killed by the kernel: out of memory"
"""The analyzer looks for the last three words."""
LATELY_NS: Final = 5_000_000_000
POLL_EVERY_NS: Final = 1_000_000_000


class OomWatch:
    """Kills for lack of memory on this node in the last seconds."""

    def __init__(self, path: Path = VMSTAT) -> None:
        self._path = path
        self._counts: deque[tuple[int, int]] = deque([(0, self.count())])

    def count(self) -> int:
        """Kills since the node started; 0 where the kernel does not say."""
        try:
            kills = (b"\n" + self._path.read_bytes()).partition(b"\noom_kill ")[2].partition(b"\n")[0]
        except OSError:
            return 0
        return int(kills) if kills.isdigit() else 0

    def poll(self, now_ns: int) -> None:
        """Note the count, once a second at most."""
        if now_ns - self._counts[-1][0] >= POLL_EVERY_NS:
            self._counts.append((now_ns, self.count()))
        while len(self._counts) > 1 and now_ns - self._counts[1][0] > LATELY_NS:
            self._counts.popleft()

    def rose_lately(self) -> bool:
        """Did the kernel kill for lack of memory in the last `LATELY_NS`, as of the latest `snapshot`?"""
        return self.count() > self._counts[0][1]


class GroupKills:
    """Kills for lack of memory in the memory cgroup of one process, since it was seen in it."""

    def __init__(self) -> None:
        self._group: Path | None = None
        self._before: int | None = None

    def enter(self, own: list[Path]) -> None:
        """The process is in this group now; an empty list if that is not known."""
        self._group = own[0] if own else None
        self._before = memory_kills_of(self._group) if self._group else None

    def none(self) -> bool:
        """Whether the group says that none of its members was killed."""
        return self._group is not None and self._before is not None and memory_kills_of(self._group) == self._before
