"""Agent and analyzer in one process: two queues and the same promises, for tests, replay and simulation.

Messages go through the envelope, so that a value that could not travel fails here too.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque

from whichrank.model.commands import Reply
from whichrank.model.telemetry import Batch
from whichrank.wire.envelope import Farewell, Message, decode, encode
from whichrank.wire.transport import Arrival, Received

QUEUE_MESSAGES = 64


class InProcessAnalyzerEnd:
    """The analyzer's end; `connect` makes agents' ends. Set `cut` to lose everything that is sent."""

    def __init__(self) -> None:
        self.cut = False
        self._arrived: deque[tuple[InProcessAgentEnd, bytearray]] = deque()
        self._route: dict[str, InProcessAgentEnd] = {}
        self._seen = Received()

    def connect(self) -> InProcessAgentEnd:
        """A new agent's end."""
        return InProcessAgentEnd(self)

    def receive(self, timeout_s: float = 0.0) -> list[Arrival]:
        """See `transport.AnalyzerEnd`; never waits, since what sends runs in the same thread."""
        arrivals = []
        while self._arrived:
            sender, data = self._arrived.popleft()
            message = decode(data)
            if isinstance(message, Farewell):
                self._seen.farewell(message.agent)
            elif isinstance(message, Batch):
                self._route[message.agent] = sender
                arrival = self._seen.arrival(message)
                if arrival is not None:
                    arrivals.append(arrival)
                elif answer := self._seen.answer_again(message.agent):
                    sender.hear(encode(answer))
        return arrivals

    def reply(self, agent: str, reply: Reply) -> None:
        """See `transport.AnalyzerEnd`."""
        self._seen.answered(agent, reply)
        if agent in self._route and not self.cut:
            self._route[agent].hear(encode(reply))

    def agents(self) -> list[str]:
        """See `transport.AnalyzerEnd`."""
        return self._seen.present()

    def close(self) -> None:
        """See `transport.AnalyzerEnd`."""
        self.cut = True

    def take(self, sender: InProcessAgentEnd, message: Message) -> bool:
        """Called by the agent's end: queue a message, or lose it."""
        if len(self._arrived) >= QUEUE_MESSAGES:
            return False
        if not self.cut:
            self._arrived.append((sender, encode(message)))
        return True


class InProcessAgentEnd:
    """The agent's end of an `InProcessAnalyzerEnd`."""

    def __init__(self, analyzer: InProcessAnalyzerEnd) -> None:
        self._analyzer = analyzer
        self._heard: deque[bytearray] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def send(self, batch: Batch) -> bool:
        """See `transport.AgentEnd`."""
        return self._analyzer.take(self, batch)

    def farewell(self, agent: str) -> None:
        """See `transport.AgentEnd`."""
        self._analyzer.take(self, Farewell(agent))

    def receive(self) -> list[Reply]:
        """See `transport.AgentEnd`."""
        with contextlib.suppress(BlockingIOError):  # what is announced from now on wakes anew
            os.eventfd_read(self._wake)
        replies = []
        while self._heard:
            message = decode(self._heard.popleft())
            if isinstance(message, Reply):
                replies.append(message)
        return replies

    def pollable(self) -> int:
        """See `transport.AgentEnd`."""
        return self._wake

    def close(self) -> None:
        """See `transport.AgentEnd`."""
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def hear(self, data: bytearray) -> None:
        """Called by the analyzer's end: an answer has come."""
        self._heard.append(data)
        os.eventfd_write(self._wake, 1)
