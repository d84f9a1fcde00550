"""What a look at the kernel's view of a job's connections costs the agent.

Each rank is a process that holds connections to itself over loopback, so that the kernel and /proc have as much to say
as in a job of that many, and has a ring with as many rows of the socket sensor; the snapshot is the agent's own, by
thread CPU time, with a netlink socket opened anew each time.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from whichrank.agent.tcp import EVERY_NS, Connections
from whichrank.errors import SensorError
from whichrank.model.rows import HEADER
from whichrank.ring.layout import MAGIC, RING, VERSION
from whichrank.ring.reader import RingReader

RANKS: Final = 8
CONNECTIONS: Final = 14
"""Of each rank: two groups with seven peers each, as Gloo connects them."""
POLLS: Final = 41


@dataclass(frozen=True, slots=True)
class TcpCost:
    """Looks at the connections of a node.

    Attributes:
        sockets: Ends of connections that were reported.
        poll_ms: CPU time of each snapshot.
        share_percent: The same, of a core, at the rate of quiet snapshots.
    """

    sockets: int
    poll_ms: tuple[float, ...]
    share_percent: tuple[float, ...]


def tcp_cost(ranks: int = RANKS, connections: int = CONNECTIONS, polls: int = POLLS) -> TcpCost:
    """Measure.

    Args:
        ranks: Processes.
        connections: Of each.
        polls: How often.

    Raises:
        SensorError: The kernel does not say of its sockets.
    """
    with ExitStack() as stack:
        watches = []
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for rank in range(ranks):
            reader = stack.enter_context(_ring(folder / f"{rank}.ring", 2 * connections))
            command = [sys.executable, "-m", __name__, str(connections)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            watches.append(
                SimpleNamespace(pid=process.pid, rank=rank, ended_ns=0, stdout=process.stdout, reader=reader)
            )
        for watch in watches:
            watch.stdout.readline()
        reported, taken_s = 0, []
        for _ in range(polls + 1):
            connected = Connections()
            before_s = time.thread_time()
            reported = len(connected.rows(cast(Any, watches), closely=True, every_s=EVERY_NS / 1e9))
            taken_s.append(time.thread_time() - before_s)
            connected.close()
    if not reported:
        raise SensorError("the kernel does not tell of TCP connections", mend="whichrank doctor")
    per_second = 1e9 / EVERY_NS
    return TcpCost(reported, tuple(1e3 * s for s in taken_s[1:]), tuple(100 * per_second * s for s in taken_s[1:]))


def _ring(path: Path, ends: int) -> RingReader:
    """A ring in which so many ends of connections are open."""
    ring = np.zeros(1, RING)
    header, rows = ring["header"], ring["connection"][0, :ends]
    header["magic"], header["version"] = MAGIC, VERSION
    header["header_bytes"], header["total_bytes"] = HEADER.itemsize, RING.itemsize
    rows["version"], rows["state"], rows["local_port"] = 2, 1, np.arange(ends)
    rows["pace"]["bytes"], rows["pace"]["ns"] = 1 << 20, 1 << 20
    path.write_bytes(ring.tobytes())
    return RingReader(path)


def _hold(connections: int) -> None:
    """In a rank process: connect to itself, and wait to be killed."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=connections))
        for _ in range(connections):
            stack.enter_context(socket.create_connection(listener.getsockname()))
            stack.enter_context(listener.accept()[0])
        print(flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _hold(int(sys.argv[1]))
