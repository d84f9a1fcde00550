"""Whether anybody listens where `--join` points, for a sentence to the user.

The agent connects in silence, and again and again; so this probes beside it, with plain sockets, in a thread, since the
resolution of a name may take half a minute. That a port answers does not make it an analyzer; that none does is news.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

from whichrank.surface.run.sender import kept_from_new_threads

PATIENCE_S: Final = 5.0
_PROBE_EVERY_S: Final = 1.0


class Reach:
    """Knocks at an address until somebody opens, or patience ends.

    Args:
        address: `tcp://HOST:PORT` or `ipc://PATH`, as `full_address` gives it.
        patience_s: Seconds.
    """

    def __init__(self, address: str, patience_s: float = PATIENCE_S) -> None:
        self.address = address
        self._deadline_s = time.monotonic() + patience_s
        self._is_open = threading.Event()
        with kept_from_new_threads():
            threading.Thread(target=self._probe, name="whichrank-reach", daemon=True).start()

    def failed(self) -> bool:
        """Whether nobody has opened in time."""
        return time.monotonic() > self._deadline_s and not self._is_open.is_set()

    def _probe(self) -> None:
        while not self._is_open.is_set() and (left_s := self._deadline_s - time.monotonic()) > 0:
            try:
                _connect(self.address, left_s)
            except (OSError, ValueError):  # ValueError: a name that no resolver can encode
                time.sleep(min(_PROBE_EVERY_S, left_s))
            else:
                self._is_open.set()


def _connect(address: str, timeout_s: float) -> None:
    if address.startswith("ipc://"):
        with socket.socket(socket.AF_UNIX) as end:
            end.settimeout(timeout_s)
            end.connect(address.removeprefix("ipc://"))
        return
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout_s):
        pass
