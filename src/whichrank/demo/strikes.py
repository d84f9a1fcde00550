"""What the injector does to a rank from outside: signals, and a memory cgroup that is too small.

Only ranks whose connection to the hub is open are struck: it closes with the process, so a pid that is used again
is never hit.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterable
from pathlib import Path


def send(pids: Iterable[int], number: signal.Signals) -> int:
    """Send a signal to processes; returns how many were there."""
    count = 0
    for pid in pids:
        try:
            os.kill(pid, number)
            count += 1
        except ProcessLookupError:
            continue
    return count


class MemoryCgroup:
    """A memory cgroup with a limit, v1 or v2, whose only member is the rank that shall run out of memory.

    Raises:
        OSError: if cgroups are not writable here.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._path, limit_file = _new_cgroup()
        try:
            (self._path / limit_file).write_text(str(limit_bytes))
            swap_file = self._path / "memory.swap.max"
            if swap_file.exists():
                swap_file.write_text("0")
        except OSError:
            self.close()
            raise

    def add(self, pid: int) -> None:
        """Move a process into the cgroup; what it has already stays charged where it was, so only new pages count."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def kills(self) -> int:
        """How many processes the kernel has killed in it for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            file = self._path / name
            if file.exists():
                rows = dict(line.split() for line in file.read_text().splitlines())
                return int(rows.get("oom_kill", 0))
        return 0

    def close(self) -> None:
        """Remove the cgroup; a member that is still there goes back to the parent."""
        try:
            for pid in (self._path / "cgroup.procs").read_text().split():
                (self._path.parent / "cgroup.procs").write_text(pid)
            self._path.rmdir()
        except OSError:
            return


def _new_cgroup() -> tuple[Path, str]:
    name = f"job-{secrets.token_hex(4)}"
    v1 = Path("/sys/fs/cgroup/memory")
    if v1.is_dir():
        (v1 / name).mkdir()
        return v1 / name, "memory.limit_in_bytes"
    root = Path("/sys/fs/cgroup")
    if "memory" not in (root / "cgroup.controllers").read_text().split():
        raise OSError("the memory controller is not available in /sys/fs/cgroup")
    (root / "cgroup.subtree_control").write_text("+memory")
    (root / name).mkdir()
    return root / name, "memory.max"
