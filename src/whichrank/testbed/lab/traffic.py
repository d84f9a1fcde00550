"""Traffic of others: flows that share cables with the job. They end with the process that began them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

_PORT: Final = 5201
_SINK: Final = """
import os, selectors, socket
parent = os.getppid()
server = socket.create_server(("", {port}))
known = selectors.DefaultSelector()
known.register(server, selectors.EVENT_READ)
print("ready", flush=True)
while os.getppid() == parent:
    for key, _ in known.select(1):
        if key.fileobj is server:
            known.register(server.accept()[0], selectors.EVENT_READ)
        elif not key.fileobj.recv(1 << 20):
            known.unregister(key.fileobj)
"""
_SOURCE: Final = """
import os, selectors, socket, time
parent = os.getppid()
known, block = selectors.DefaultSelector(), bytes(1 << 17)
for _ in range({flows}):
    flow = socket.create_connection(("{address}", {port}))
    flow.setblocking(False)
    known.register(flow, selectors.EVENT_WRITE)
print("ready", flush=True)
while os.getppid() == parent:
    for key, _ in known.select(1):
        key.fileobj.send(block)
    time.sleep(0.005)
"""


class Traffic:
    """Flows from one place to another, as much as the way takes.

    Args:
        source: What stands before a command that is to run where they begin.
        target: The same where they end.
        address: Where they end.
        flows: How many.

    Raises:
        OSError: They do not begin.
    """

    def __init__(self, source: Sequence[str], target: Sequence[str], address: str, flows: int) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        try:
            self._start(target, _SINK.format(port=_PORT))
            self._start(source, _SOURCE.format(port=_PORT, address=address, flows=flows))
        except OSError:
            self.close()
            raise

    def _start(self, place: Sequence[str], program: str) -> None:
        command = [*place, sys.executable, "-S", "-c", program]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._processes.append(process)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise OSError("the traffic of others does not begin")

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.kill()
            process.communicate()
        self._processes.clear()
