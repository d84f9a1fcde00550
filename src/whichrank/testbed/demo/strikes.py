"""What the injector does to a rank from outside: signals, control groups that are too small, company on its core.

Only ranks whose connection to the hub is open are struck: it closes with the process, so a pid that is used again
is never hit.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_PERIOD_US = 100_000
_LESS = 5
"""By how much a rank's priority is lowered beside competitors."""


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


class Cgroup:
    """A control group, v1 or v2, for one rank.

    Args:
        controller: `memory` or `cpu`.
        prefix: What its name begins with.

    Raises:
        OSError: if cgroups are not writable here.
    """

    def __init__(self, controller: str, prefix: str) -> None:
        name = f"{prefix}{secrets.token_hex(4)}"
        v1 = Path("/sys/fs/cgroup") / controller
        self.is_v1 = v1.is_dir()
        if self.is_v1:
            self.path = v1 / name
        else:
            root = Path("/sys/fs/cgroup")
            if controller not in (root / "cgroup.controllers").read_text().split():
                raise OSError(f"the {controller} controller is not available in {root}")
            (root / "cgroup.subtree_control").write_text(f"+{controller}")
            self.path = root / name
        self.path.mkdir()

    def limit(self, v1: dict[str, str], v2: dict[str, str]) -> None:
        """Write limits; where that fails the group is removed."""
        try:
            for file, value in (v1 if self.is_v1 else v2).items():
                (self.path / file).write_text(value)
        except OSError:
            self.close()
            raise

    def add(self, pid: int) -> None:
        """Move a process into it; memory that it has already stays charged where it was, so only new pages count.

        Raises:
            OSError: It has ended; the group is removed.
        """
        try:
            (self.path / "cgroup.procs").write_text(str(pid))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Remove it; a member that is still there goes back to the parent."""
        try:
            for pid in (self.path / "cgroup.procs").read_text().split():
                (self.path.parent / "cgroup.procs").write_text(pid)
            self.path.rmdir()
        except OSError:
            return


def memory_cgroup(limit_bytes: int, prefix: str) -> Cgroup:
    """A group whose member runs out of memory.

    Raises:
        OSError: if cgroups are not writable here.
    """
    group = Cgroup("memory", prefix)
    v2 = {"memory.max": str(limit_bytes)}
    if (group.path / "memory.swap.max").exists():
        v2["memory.swap.max"] = "0"
    group.limit({"memory.limit_in_bytes": str(limit_bytes)}, v2)
    return group


def cpu_cgroup(cores: float, prefix: str) -> Cgroup:
    """A group whose members together may use so many cores.

    Raises:
        OSError: if cgroups are not writable here.
    """
    group = Cgroup("cpu", prefix)
    quota_us = max(1000, int(cores * _PERIOD_US))
    v1 = {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota_us)}
    group.limit(v1, {"cpu.max": f"{quota_us} {_PERIOD_US}"})
    return group


class Hogs:
    """Processes that use up a core on which a rank is made to run.

    Args:
        pid: the rank.
        core: where.
        count: how many.
    """

    def __init__(self, pid: int, core: int, count: int) -> None:
        self._pid = pid
        self._before = os.sched_getaffinity(pid)
        os.sched_setaffinity(pid, {core})
        self._nice = os.getpriority(os.PRIO_PROCESS, pid)
        # A rank that sleeps often is let in before processes that never do, so these get more weight than it.
        self._lower(_LESS)
        loop = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile os.getppid() == {os.getpid()}: pass"
        command = [sys.executable, "-S", "-c", loop]
        # Each in a session of its own: the kernel may share out a core by session before it does by process.
        self._processes = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]

    def close(self) -> None:
        """End them, and give the rank its cores back."""
        for process in self._processes:
            process.kill()
            process.wait()
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self._pid, self._before)
            self._lower(0)

    def _lower(self, by: int) -> None:
        """Less of a core for the rank than for others who want it, by process and by session (sched(7), autogroup)."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._pid, self._nice + by)
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._pid}/autogroup").write_text(str(by))
