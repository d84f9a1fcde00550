"""Both ends of asking a nursery for a launcher: who asks, and the child that it gets, which may look at who asked."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

NETWORK: Final = "/proc/self/ns/net"
_ROOM: Final = 1 << 21


class Owner:
    """Who has asked for a run, as the child sees it.

    Args:
        connection: To it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(False)

    def wants(self) -> int:
        """The number of a signal that it has got; SIGKILL if it has gone; 0 if nothing."""
        try:
            said = self._connection.recv(1)
        except BlockingIOError:
            return 0
        except OSError:
            return signal.SIGKILL
        return said[0] if said else signal.SIGKILL

    def leave(self) -> None:
        """A rank has no owner."""
        self._connection.close()


def ask(path: str, arguments: Sequence[str], signals: Sequence[int]) -> int:
    """Have a launcher run there, and wait for its end.

    Args:
        path: Of the socket.
        arguments: Of the launcher.
        signals: Which are passed on.

    Returns:
        Its exit code; 1 if it has gone without one.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, Path(NETWORK).open("rb") as network:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        connection.connect(path)
        for number in signals:
            signal.signal(number, lambda got, _: _pass_on(connection, got))
        asked = {"arguments": list(arguments), "folder": str(Path.cwd()), "environment": dict(os.environ)}
        socket.send_fds(connection, [json.dumps(asked).encode()], [0, 1, 2, network.fileno()])
        try:
            said = connection.recv(16)
        except ConnectionError:
            said = b""
    return int(said) if said else 1


def _pass_on(connection: socket.socket, number: int) -> None:
    try:
        connection.send(bytes([number]))
    except OSError:
        return  # it has ended
