"""The network namespaces of labs: which there are, who runs in them, and their end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "wrlab-"
"""What their names begin with."""
NAMED: Final = Path("/run/netns")
INSIDE: Final = "WHICHRANK_LAB_INSIDE"
"""In the environment of a command that has become root of a user namespace."""
_PROC: Final = Path("/proc")
_GONE_WITHIN_S: Final = 5.0


def may_mend() -> str:
    """What may help where the kernel refuses something."""
    is_root = os.geteuid() == 0 and not os.environ.get(INSIDE)
    return "in a container, allow it (docker run --privileged)" if is_root else "run it as root"


def namespaces() -> list[str]:
    """Names of all network namespaces of labs on this machine."""
    if not shutil.which("ip"):
        return []
    done = subprocess.run(["ip", "netns", "list"], check=False, capture_output=True, text=True)
    names = (line.split()[0] for line in done.stdout.splitlines() if line.split())
    return [name for name in names if name.startswith(PREFIX)]


def processes_in(namespace: str) -> list[int]:
    """Pids of all that run in a network namespace."""
    done = subprocess.run(["ip", "netns", "pids", namespace], check=False, capture_output=True, text=True)
    return [int(pid) for pid in done.stdout.split()]


def remove_namespaces(names: Iterable[str]) -> None:
    """Kill what runs in these namespaces, and remove them; this process and what it was started by go on."""
    names, spared = list(names), set(_ancestors())
    deadline_s = time.monotonic() + _GONE_WITHIN_S
    while time.monotonic() < deadline_s:
        left = [(pid, name) for name in names for pid in processes_in(name) if pid not in spared]
        if not left:
            break
        for pid, name in left:
            _kill(pid, name)
        time.sleep(0.05)
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _ancestors() -> Iterator[int]:
    """This process, who started it, and so on."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        try:
            pid = int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def _kill(pid: int, namespace: str) -> None:
    """Kill the process, if it still is one of the namespace: its pid may be another's by now."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if os.path.samestat((_PROC / str(pid) / "ns/net").stat(), (NAMED / namespace).stat()):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)
