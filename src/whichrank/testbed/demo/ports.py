"""A TCP port for a job's rendezvous.

The kernel hands out the ports of its ephemeral range to every connection that is opened, so one that it offers may be
taken again before the job listens on it. Ports below that range are given to nobody who does not ask for them.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_HIGHEST: Final = 32_768
_LEAST_CHOICE: Final = 1_000
_TRIES: Final = 100


def free_port(host: str = "127.0.0.1") -> int:
    """A port of `host` on which nobody listens, below the kernel's ephemeral range where that leaves a choice."""
    below = min(_first_ephemeral(), _HIGHEST)
    if below - _LOWEST >= _LEAST_CHOICE:
        for _ in range(_TRIES):
            port = random.SystemRandom().randrange(_LOWEST, below)
            if _is_free(host, port):
                return port
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _first_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _HIGHEST


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
