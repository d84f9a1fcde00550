"""ZeroMQ between agents (DEALER) and the analyzer (ROUTER), over `ipc://` on a node and `tcp://` between nodes.

Nothing here blocks: sends are tried once, queues are bounded, and an agent whose connection is gone is reported so by
`send`, because it connects "immediate" (messages are queued on completed connections only). Connections come back by
themselves. Over TCP both ends prove that they have the key of the job, if there is one, and what they send is
encrypted. A socket file has a mode instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import zmq

from whichrank.errors import EnvelopeFormatError, WhichrankError
from whichrank.model.commands import Reply
from whichrank.model.telemetry import Batch
from whichrank.wire.address import AddressInUseError, full_address
from whichrank.wire.envelope import MOST_BYTES, Farewell, Message, decode, encode
from whichrank.wire.keys import agent_pair, analyzer_pair
from whichrank.wire.transport import MOST_AGENTS, Arrival, Received

if TYPE_CHECKING:
    from whichrank.wire.gate import Gate

LINGER_MS: Final = 2000
_RECONNECT_MS, _RECONNECT_MOST_MS = 500, 1000
"""Who has another key comes again as often as this."""
_SILENT_MS = 10000
_KEEPALIVE_S, _KEEPALIVE_COUNT = 2, 5
"""The kernel asks whether the other end is there. ZeroMQ's own heartbeat would end the process (4.3.5: an assertion in
stream_engine_base.cpp) when a peer hangs up whose messages wait because nobody has read for a while."""
_CONNECT_MS = 5000
"""Without it a connection that a broken network swallowed is waited for as long as TCP likes: two minutes."""
_BACKLOG, _QUEUE_MESSAGES = 8192, 64
_ANALYZER_QUEUE_MESSAGES = 2
"""Of one connection, as it comes in: an agent that is not answered keeps the others itself."""
_AGENT_QUEUE_MESSAGES = 8
"""Of an agent: all that it may have unanswered, twice. What lies here takes memory that the agent has not counted."""
MOST_REFUSALS: Final = 4
"""Reasons that are kept: whoever sends nonsense does not fill the terminal."""
_MOST_AT_ONCE: Final = 256
_V4_IN_V6: Final = re.compile(r"\[::ffff:([0-9.]+)\]")


class ZmqAgentEnd:
    """The agent's end: one DEALER that connects, and connects again.

    Args:
        address: As for `full_address`.
        key: Of the job; empty where the analyzer asks for none.
    """

    def __init__(self, address: str, key: str = "") -> None:
        self._socket = _socket(zmq.Context.instance(), zmq.DEALER)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.SNDHWM, _AGENT_QUEUE_MESSAGES)
        self._socket.setsockopt(zmq.CONNECT_TIMEOUT, _CONNECT_MS)
        if key:
            show_key(self._socket, key)
        self._socket.connect(full_address(address))

    def send(self, batch: Batch) -> bool:
        """See `transport.AgentEnd`."""
        return self._try(batch)

    def farewell(self, agent: str) -> None:
        """See `transport.AgentEnd`."""
        self._try(Farewell(agent))

    def receive(self) -> list[Reply]:
        """See `transport.AgentEnd`."""
        replies: list[Reply] = []
        for _ in range(_MOST_AT_ONCE):
            try:
                message = decode(self._socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                break
            except EnvelopeFormatError:
                continue  # whoever answers there is no analyzer: as good as no answer
            if isinstance(message, Reply):
                replies.append(message)
        return replies

    def pollable(self) -> zmq.Socket[bytes]:
        """See `transport.AgentEnd`."""
        return self._socket

    def close(self) -> None:
        """See `transport.AgentEnd`."""
        self._socket.close(linger=LINGER_MS)

    def _try(self, message: Message) -> bool:
        try:
            self._socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True


class _Door(NamedTuple):
    """One address at which agents come."""

    socket: zmq.Socket[bytes]
    gate: Gate | None


class ZmqAnalyzerEnd:
    """The analyzer's end: a ROUTER at each of `addresses`.

    Args:
        addresses: As for `full_address`; port 0 binds any free one.
        key: Of the job, which those who come over TCP must have; empty lets everybody in.

    Attributes:
        addresses: What was bound, as agents have to name it.
        dropped: How many messages were not understood.
        refusals: Why, each reason once, the first ones.

    Raises:
        AddressInUseError: Something else listens at an address.
        WhichrankError: An address cannot be bound for another reason.
    """

    def __init__(self, addresses: Sequence[str], key: str = "") -> None:
        self._doors: list[_Door] = []
        self._poller = zmq.Poller()
        self._route: dict[str, tuple[zmq.Socket[bytes], bytes]] = {}
        self._seen = Received()
        self.addresses: list[str] = []
        self.dropped = 0
        self.refusals: list[str] = []
        for address in map(full_address, addresses):
            self._open(address, key if address.startswith("tcp:") else "")

    @property
    def refused(self) -> int:
        """How many connections came without the job's key."""
        return sum(door.gate.refused for door in self._doors if door.gate)

    def receive(self, timeout_s: float) -> list[Arrival]:
        """See `transport.AnalyzerEnd`."""
        ready = dict(self._poller.poll(max(0, round(timeout_s * 1000))))
        arrivals: list[Arrival] = []
        for socket, gate in self._doors:
            if socket in ready:
                arrivals += self._arrivals(socket)
            if gate:
                gate.count()
        return arrivals

    def reply(self, agent: str, reply: Reply) -> None:
        """See `transport.AnalyzerEnd`."""
        self._seen.answered(agent, reply)
        self._send(agent, reply)

    def agents(self) -> list[str]:
        """See `transport.AnalyzerEnd`."""
        return self._seen.present()

    def pollables(self) -> list[zmq.Socket[bytes]]:
        """What a zmq.Poller waits on for the next batch."""
        return [door.socket for door in self._doors]

    def close(self) -> None:
        """See `transport.AnalyzerEnd`."""
        for socket, gate in self._doors:
            socket.close(linger=LINGER_MS)
            if gate:
                gate.close()
        self._doors.clear()

    def _arrivals(self, socket: zmq.Socket[bytes]) -> list[Arrival]:
        arrivals: list[Arrival] = []
        for _ in range(_MOST_AT_ONCE):
            try:
                identity, *content = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            try:
                arrival = self._arrival(socket, identity, decode(content[-1] if content else b""))
            except EnvelopeFormatError as error:
                self._drop(error)
                continue
            if arrival is not None:
                arrivals.append(arrival)
        return arrivals

    def _drop(self, error: EnvelopeFormatError) -> None:
        self.dropped += 1
        why = f"{error.what}; {error.mend}" if error.mend else error.what
        if why not in self.refusals and len(self.refusals) < MOST_REFUSALS:
            self.refusals.append(why)

    def _arrival(self, socket: zmq.Socket[bytes], identity: bytes, message: Message) -> Arrival | None:
        if isinstance(message, Farewell):
            self._seen.farewell(message.agent)
        if not isinstance(message, Batch):
            return None
        arrival = self._seen.arrival(message)
        if message.agent in self._route or len(self._route) < MOST_AGENTS:
            self._route[message.agent] = socket, identity
        if arrival is None and (answer := self._seen.answer_again(message.agent)):
            self._send(message.agent, answer)
        return arrival

    def _send(self, agent: str, reply: Reply) -> None:
        if agent in self._route:
            socket, identity = self._route[agent]
            try:
                socket.send_multipart([identity, encode(reply)], zmq.NOBLOCK)
            except zmq.ZMQError:  # full, or gone: it sends again when it is back
                del self._route[agent]

    def _open(self, address: str, key: str) -> None:
        socket = _socket(zmq.Context() if key else zmq.Context.instance(), zmq.ROUTER)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.BACKLOG, _BACKLOG)
        socket.setsockopt(zmq.RCVHWM, _ANALYZER_QUEUE_MESSAGES)
        self._doors.append(_Door(socket, _gate(socket, key) if key else None))
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            is_in_use = error.errno == errno.EADDRINUSE
            mend = "or end the process that uses it" if is_in_use else "one of this machine, such as 0.0.0.0:PORT"
            raise (AddressInUseError if is_in_use else WhichrankError)(
                f"the analyzer cannot listen: {os.strerror(error.errno or 0)}",
                where=address,
                mend=f"give another address, {mend}",
            ) from error
        self._poller.register(socket, zmq.POLLIN)
        bound = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        if bound.startswith("ipc:///"):
            with contextlib.suppress(OSError):  # where modes cannot be set, the folder's own has to do
                Path(bound.removeprefix("ipc://")).chmod(0o600)
        self.addresses.append(_V4_IN_V6.sub(r"\1", bound))


def _gate(socket: zmq.Socket[bytes], key: str) -> Gate:
    """Imported only where it is needed: it brings asyncio, 5 MiB that each agent would have."""
    from whichrank.wire.gate import Gate

    return Gate(socket, key)


def show_key(socket: zmq.Socket[bytes], key: str) -> None:
    """Let a socket that will connect prove that it has the key, and ask the analyzer for the same."""
    pair = agent_pair(key)
    socket.curve_publickey, socket.curve_secretkey = pair
    socket.curve_serverkey = analyzer_pair(key).public


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    for option, value in (
        (zmq.LINGER, LINGER_MS),
        (zmq.SNDHWM, _QUEUE_MESSAGES),
        (zmq.RCVHWM, _QUEUE_MESSAGES),
        (zmq.MAXMSGSIZE, MOST_BYTES),
        (zmq.IPV6, 1),
        (zmq.RECONNECT_IVL, _RECONNECT_MS),
        (zmq.RECONNECT_IVL_MAX, _RECONNECT_MOST_MS),
        (zmq.TCP_KEEPALIVE, 1),
        (zmq.TCP_KEEPALIVE_IDLE, _KEEPALIVE_S),
        (zmq.TCP_KEEPALIVE_INTVL, _KEEPALIVE_S),
        (zmq.TCP_KEEPALIVE_CNT, _KEEPALIVE_COUNT),
        (zmq.TCP_MAXRT, _SILENT_MS),
        (zmq.HANDSHAKE_IVL, _SILENT_MS),
    ):
        socket.setsockopt(option, value)
    return socket
