"""The rank's end of the control channel.

A rank connects to the unix socket that ``DEMO_CONTROL`` names, says which rank it is, and from then on looks once
per operation whether an order has come (one non-blocking `recv`, about a microsecond). Orders name a place in the
training script ("iteration 14, operation 9") and are kept until that place is reached; only the rank that must act
receives one. Without the variable, or when the other end has gone, the seat is empty and the job is an ordinary
job: it never fails because of it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, field
from typing import Any

ADDRESS_VARIABLE = "DEMO_CONTROL"
_HELLO_TIMEOUT_S = 30.0
_MAX_MESSAGE_BYTES = 1 << 16


@dataclass(frozen=True)
class Order:
    """What a rank is told to do at a place of its script.

    Args:
        do: name of the action, see `deviations` and `errands`.
        variant: which form of it.
        iteration: first iteration at which it applies.
        place: number of the operation within the iteration, or a label.
        params: further numbers, by name; units are in the names.
    """

    do: str
    variant: str = ""
    iteration: int = 0
    place: int | str = "iteration"
    params: dict[str, Any] = field(default_factory=dict)


class Seat:
    """Connection to the control channel; all methods are safe to call when there is none."""

    def __init__(self, address: str | None = None) -> None:
        self._orders: list[Order] = []
        self._socket: socket.socket | None = None
        address = address if address is not None else os.environ.get(ADDRESS_VARIABLE, "")
        if not address:
            return
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            channel.connect(address)
        except OSError:
            channel.close()
            return
        self._socket = channel

    def greet(self, rank: int, **facts: Any) -> dict[str, Any]:
        """Say which rank this is, and wait for the answer that holds for the whole run.

        Returns:
            The settings for this rank, empty if there is no other end.
        """
        if self._socket is None:
            return {}
        channel = self._socket
        self._send({"type": "hello", "rank": rank, "pid": os.getpid(), **facts})
        try:
            channel.settimeout(_HELLO_TIMEOUT_S)
            answer = json.loads(channel.recv(_MAX_MESSAGE_BYTES) or b"{}")
            channel.setblocking(False)
        except (OSError, ValueError):
            self._leave()
            return {}
        return dict(answer)

    def report(self, kind: str, **facts: Any) -> None:
        """Tell the other end that something has happened, stamped with CLOCK_MONOTONIC in ns."""
        self._send({"type": kind, "ns": time.monotonic_ns(), **facts})

    def order_at(self, iteration: int, place: int | str) -> Order | None:
        """Look for new orders, and take the one that is due at this place, if any."""
        self._receive()
        if not self._orders:
            return None
        for order in self._orders:
            if order.place == place and iteration >= order.iteration:
                self._orders.remove(order)
                return order
        return None

    def _receive(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(_MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._leave()
                return
            self._orders.append(Order(**json.loads(data)))

    def _send(self, message: dict[str, Any]) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send(json.dumps(message).encode())
        except OSError:
            self._leave()

    def _leave(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
