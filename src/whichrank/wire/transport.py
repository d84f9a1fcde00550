"""What both ends of a transport promise, whatever carries the bytes.

Flow control is by credit: an agent may have `Reply.credit` batches unanswered, then it keeps what must not be lost
and sends again when it hears. What is reported once (records, events, communicators) is sent again, in order, until it
is acknowledged; the analyzer's end takes the sequences of an agent without a gap and each one once, so nothing
is fed twice and nothing is passed over.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

from whichrank.model.commands import Reply
from whichrank.model.telemetry import Batch

MOST_AGENTS: Final = 1 << 16
"""That are heard in a job's life: one per node, and those that were started anew."""

FIRST_CREDIT = 2
"""Batches that an agent may send before it has heard anything."""


class AgentEnd(Protocol):
    """The agent's end."""

    def send(self, batch: Batch) -> bool:
        """Hand a batch over; False if nobody takes it now. Never blocks."""

    def farewell(self, agent: str) -> None:
        """Say that nothing more comes. Never blocks."""

    def receive(self) -> list[Reply]:
        """Replies that have come, oldest first. Never blocks."""

    def pollable(self) -> Any:
        """What a zmq.Poller waits on for the next reply: a descriptor or a ZeroMQ socket."""

    def close(self) -> None:
        """Close it; what was handed over may still be sent for a short while."""


class Arrival(NamedTuple):
    """A batch, and the end that it came to."""

    batch: Batch
    is_new_agent: bool
    """The agent was not known: it has to say its communicators again."""


class AnalyzerEnd(Protocol):
    """The analyzer's end."""

    def receive(self, timeout_s: float) -> list[Arrival]:
        """Batches that have come, each sequence once; waits for the first one."""

    def reply(self, agent: str, reply: Reply) -> None:
        """Answer an agent. Never blocks; an agent that has gone is forgotten."""

    def agents(self) -> list[str]:
        """Agents that were heard and have not said farewell."""

    def close(self) -> None:
        """Close it."""


class Received:
    """Which sequences of which agents came already, what they were answered, and who has said farewell."""

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}
        self._answer: dict[str, Reply] = {}
        self._gone: set[str] = set()

    def arrival(self, batch: Batch) -> Arrival | None:
        """The batch, or None if it came before, one before it is missing, or it is of an agent too many.

        A word that all is well has no number: each comes.
        """
        latest = self._latest.get(batch.agent)
        if batch.is_well:
            is_too_many = latest is None and len(self._latest) >= MOST_AGENTS
            return None if is_too_many else Arrival(batch, latest is None)
        if latest is not None and batch.sequence != latest + 1:
            return None
        if latest is None and len(self._latest) >= MOST_AGENTS:
            return None
        self._latest[batch.agent] = batch.sequence
        self._gone.discard(batch.agent)
        return Arrival(batch, latest is None)

    def answered(self, agent: str, reply: Reply) -> None:
        """Keep the answer, for an agent that did not hear it."""
        if agent in self._latest:
            self._answer[agent] = reply

    def answer_again(self, agent: str) -> Reply | None:
        """The last answer that an agent was given."""
        return self._answer.get(agent)

    def farewell(self, agent: str) -> None:
        """The agent has said that nothing more comes."""
        self._gone.add(agent)

    def present(self) -> list[str]:
        """Agents that may still send."""
        return [agent for agent in self._latest if agent not in self._gone]
