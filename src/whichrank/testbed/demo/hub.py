"""The injector's end of the control channel.

It listens on a unix socket in a private folder (0700) with a random, neutral name. It knows each rank's pid from
the kernel (SO_PEERCRED), and how far each has come; the injector's own thread waits here for the moment it has
drawn. Nothing about a fault is written to the folder, to the environment or to a command line.
"""

from __future__ import annotations

import json
import selectors
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from whichrank.testbed.demo.folders import new_folder
from whichrank.testbed.demo.seat import ADDRESS_VARIABLE, Order

_MAX_MESSAGE_BYTES = 1 << 16
_POLL_EVERY_S = 0.2


class Hub:
    """Knows the ranks, gives them orders.

    Args:
        settings: makes the settings of a rank for its whole run, asked once when it says hello.
    """

    def __init__(self, settings: Callable[[int], dict[str, Any]]) -> None:
        self.pids: dict[int, int] = {}
        self.facts: dict[int, dict[str, Any]] = {}
        self.iterations: dict[int, int] = {}
        self.began_ns: dict[int, int] = {}  # when the first rank began each iteration, CLOCK_MONOTONIC
        self.began_of: dict[int, dict[int, int]] = {}  # by rank, when it began each, on the same clock
        self.sites: dict[int, list[dict[str, Any]]] = {}
        self.events: dict[int, dict[str, Any]] = {}
        self._settings = settings
        self.folder = new_folder("demo-", has_socket=True)
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._ranks: dict[socket.socket, int] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.folder / "ctl"))
        self._listener.listen(256)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="demo-hub", daemon=True)

    def start(self) -> None:
        """Serve ranks from now on."""
        self._thread.start()

    def env(self) -> dict[str, str]:
        """What the job needs in its environment."""
        return {ADDRESS_VARIABLE: str(self.folder / "ctl")}

    def order(self, rank: int, order: Order) -> None:
        """Send an order to one rank; a rank that has gone misses it."""
        with self._changed:
            channel = self._sockets.get(rank)
        if channel is not None:
            try:
                channel.send(json.dumps(asdict(order)).encode())
            except OSError:
                return

    def connected(self) -> dict[int, int]:
        """Pids of the ranks whose connection is open, by rank."""
        with self._changed:
            return {rank: self.pids[rank] for rank in sorted(self._sockets)}

    def wait_for(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `ready`, which is asked whenever a rank has said something.

        Returns:
            False if the hub was closed or the time was over first.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._closing.is_set() and (end_s is None or time.monotonic() < end_s):
                if ready():
                    return True
                self._changed.wait(_POLL_EVERY_S)
        return False

    def sleep(self, duration_s: float) -> bool:
        """Sleep; returns False if the hub was closed meanwhile."""
        return not self._closing.wait(duration_s)

    def close(self) -> None:
        """Stop serving and remove the folder."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        for channel in [*self._ranks, self._listener]:
            channel.close()
        self._selector.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serve(self) -> None:
        while not self._closing.is_set():
            for key, _events in self._selector.select(_POLL_EVERY_S):
                channel = key.fileobj
                assert isinstance(channel, socket.socket)
                if channel is self._listener:
                    self._accept()
                else:
                    self._read(channel)

    def _accept(self) -> None:
        channel, _address = self._listener.accept()
        channel.setblocking(False)
        self._ranks[channel] = -1
        self._selector.register(channel, selectors.EVENT_READ)

    def _read(self, channel: socket.socket) -> None:
        try:
            data = channel.recv(_MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        with self._changed:
            try:
                if not data:
                    raise EOFError
                self._take(channel, json.loads(data))
            except (EOFError, ValueError, KeyError, OSError):  # it has gone, or it is no rank
                self._selector.unregister(channel)
                self._sockets.pop(self._ranks.pop(channel), None)
                channel.close()
            self._changed.notify_all()

    def _take(self, channel: socket.socket, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            rank = int(message["rank"])
            credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            self.pids[rank] = struct.unpack("3i", credentials)[0]
            self.facts[rank] = message
            self._ranks[channel] = rank
            self._sockets[rank] = channel
            channel.send(json.dumps(self._settings(rank)).encode())
            return
        rank = self._ranks[channel]
        if message["type"] == "iteration":
            self.iterations[rank] = int(message["iteration"])
            at_ns = int(message["ns"])  # by the rank: it may be read much later
            self.began_of.setdefault(rank, {})[self.iterations[rank]] = at_ns
            self.began_ns[self.iterations[rank]] = min(at_ns, self.began_ns.get(self.iterations[rank], at_ns))
            if "sites" in message:
                self.sites[rank] = message["sites"]
        elif message["type"] == "now":
            self.events[rank] = message
