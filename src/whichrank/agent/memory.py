"""Did the kernel kill for lack of memory? It counts such kills for the node and for each memory cgroup alike.

The node's own count (`oom_kill` in /proc/vmstat) rises for both, so one number is enough: a rank that ends by SIGKILL
while the count has risen of late was killed for memory. "Of late" are some seconds: the count rises first, and a large
process needs a while to give its memory back. It tells the reason, never the rank.
"""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from typing import Final

VMSTAT: Final = Path("/proc/vmstat")
OUT_OF_MEMORY: Final = "killed by the kernel: out of memory"
"""The analyzer looks for the last three words."""
LATELY_NS: Final = 5_000_000_000
LOOK_EVERY_NS: Final = 1_000_000_000


class OomWatch:
    """Kills for lack of memory on this node in the last seconds."""

    def __init__(self, path: Path = VMSTAT) -> None:
        self._path = path
        self._counts: deque[tuple[int, int]] = deque([(0, self.count())])

    def count(self) -> int:
        """Kills since the node started; 0 where the kernel does not tell."""
        try:
            found = re.search(rb"^oom_kill (\d+)$", self._path.read_bytes(), re.MULTILINE)
        except OSError:
            return 0
        return int(found.group(1)) if found else 0

    def look(self, now_ns: int) -> None:
        """Note the count, once a second at most."""
        if now_ns - self._counts[-1][0] >= LOOK_EVERY_NS:
            self._counts.append((now_ns, self.count()))
        while len(self._counts) > 1 and now_ns - self._counts[1][0] > LATELY_NS:
            self._counts.popleft()

    def rose_lately(self) -> bool:
        """Did the kernel kill for lack of memory in the last `LATELY_NS`, as of the latest `look`?"""
        return self.count() > self._counts[0][1]
