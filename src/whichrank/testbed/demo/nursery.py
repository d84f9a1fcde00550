"""A process that has torch loaded already and forks the launchers of many runs: importing torch is paid for once.

``python -m whichrank.testbed.demo.nursery SOCKET PARENT`` listens there, as long as the process with that pid lives;
``python -m whichrank.testbed.demo.launcher --nursery SOCKET ...`` asks it. The child that it forks takes over folder,
environment, standard streams and network namespace of who asks, and is the launcher; who asks passes its signals on and
ends as it does. If either end goes, so does the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from whichrank.testbed.demo import launcher
from whichrank.testbed.demo.ask import NETWORK, Owner

_CLONE_NEWNET: Final = 0x40000000
_MOST_BYTES: Final = 1 << 20


def serve(path: str, launch: Callable[[list[str], Owner], int]) -> None:
    """Fork a launcher for each who asks, until this process is killed.

    Args:
        path: Of the socket; its folder is for its user only.
        launch: Runs a launcher.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen(64)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the launchers
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                if not os.fork():
                    server.close()
                    _be_launcher(connection, launch)


def _be_launcher(connection: socket.socket, launch: Callable[[list[str], Owner], int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    message, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 4)
    asked = json.loads(message)
    _enter_network(descriptors[3])
    for number in range(3):
        os.dup2(descriptors[number], number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    code = launch(asked["arguments"], Owner(connection))  # its ranks leave through the interpreter's end
    sys.stdout.flush()
    sys.stderr.flush()
    connection.setblocking(True)
    with contextlib.suppress(OSError):  # it has gone
        connection.send(str(code).encode())
    os._exit(0)


def _enter_network(descriptor: int) -> None:
    if os.path.samestat(os.fstat(descriptor), Path(NETWORK).stat()):
        return
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main(path: str, parent: int) -> None:
    """Load what ranks need, and serve; ends with its parent."""
    launcher.die_with_parent()
    if os.getppid() != parent:  # it has gone already
        return
    launcher.load()
    serve(path, launcher.main)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
