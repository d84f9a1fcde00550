"""What a server asks of agents: typed orders, and commands, which are orders on their way to one agent.

A command has a number. Its agent obeys it once and gives the number back with its next batch; until then the server
sends the command again. So an answer that is lost, or an agent that was slow to hear, loses no order.

To add an order: its struct here and in `Order`, its bound in `wire.envelope`, and what obeys it in `agent.agent`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from whichrank.model.telemetry import AnotherJob

MOST_MICROBATCHES: Final = 1 << 24
"""Of an iteration."""


class Pace(msgspec.Struct, frozen=True, tag="pace"):
    """How often to read. It holds until the next one."""

    closely: bool = False
    """Read everything more often: something is suspected."""
    connections: bool = False
    """Read connections more often: a link may be slow."""
    every_s: float = 0.0
    """Seconds between two snapshots while all is well, at most, or for who waits for news; 0: as the agent does."""


class TakeStacks(msgspec.Struct, frozen=True, tag="stacks"):
    """Read the stacks of these ranks now."""

    ranks: tuple[int, ...]


class SampleThreads(msgspec.Struct, frozen=True, tag="samples"):
    """Sample the thread that trains of these ranks, for so many seconds."""

    ranks: tuple[int, ...]
    seconds: float


class ProbePaths(msgspec.Struct, frozen=True, tag="probes"):
    """Connect to these addresses of other nodes now, and report what comes of it."""

    addresses: tuple[str, ...]


class ReportAgain(msgspec.Struct, frozen=True, tag="again"):
    """Report all communicators and states again: what was sent before was not taken."""


class RankTest(msgspec.Struct, frozen=True):
    """What one rank measures while it waits at the gate."""

    rank: int
    number: int
    """By which the rank tells tests apart, from 1."""
    kind: int
    """Of `model.codes.GateTest`."""
    repeats: int
    comm_id: int = 0
    """Whose links are tested."""
    sizes: tuple[int, ...] = ()
    """Bytes of the messages."""
    passes: tuple[tuple[int, bool], ...] = ()
    """In each: with which place of the communicator, -1 none, and whether it sends."""


class HoldGate(msgspec.Struct, frozen=True, tag="gate"):
    """How the gates of all ranks of this node should be, for a moment: who is not told so again opens them.

    One of these replaces the one before it.
    """

    pause: int
    """Its number, from 1; another one for each pause."""
    renewal: int
    """Another one each time."""
    longest_s: float = 0.0
    """A rank goes on after so long, whatever is told."""
    at_step: int = 0
    """Keep back what comes after this optimizer step; 0: only report how far ranks have come."""
    at_ordinals: tuple[tuple[int, int], ...] = ()
    """The same by operations, for ranks that make no steps: rank, and the last operation that it may begin."""
    tests: tuple[RankTest, ...] = ()
    is_over: bool = False
    """Open all gates, and report no more."""


class Share(msgspec.Struct, frozen=True):
    """Which microbatches of an iteration the replica of a rank computes."""

    rank: int
    first: Annotated[int, Meta(ge=0, le=MOST_MICROBATCHES)]
    """The number of the first one, over all replicas."""
    count: Annotated[int, Meta(ge=1, le=MOST_MICROBATCHES)]


class ShareOut(msgspec.Struct, frozen=True, tag="shares"):
    """Other shares of the work, for ranks of this node. Ranks agree among themselves from when on they are used."""

    version: Annotated[int, Meta(ge=1, lt=1 << 32)]
    """One more than the one before, which all ranks must use by now."""
    shares: tuple[Share, ...]


class Place(msgspec.Struct, frozen=True):
    """Where a rank is to be."""

    rank: int
    place: Annotated[int, Meta(ge=0, lt=1 << 30)]
    """Which stage of which replica that is, the program says."""


class PlaceOut(msgspec.Struct, frozen=True, tag="places"):
    """Other places, for ranks of this node. Ranks agree among themselves between which iterations they change."""

    version: Annotated[int, Meta(ge=1, lt=1 << 32)]
    """One more than the one before, which all ranks must use by now."""
    places: tuple[Place, ...]
    saves: bool = False
    """Ranks stay where they are, and write their states to disk between these iterations."""


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """End: this agent watches another job, so nothing that it sends is taken."""

    because: AnotherJob


Order = Pace | TakeStacks | SampleThreads | ProbePaths | ReportAgain | HoldGate | ShareOut | PlaceOut | Leave


class Command(msgspec.Struct, frozen=True):
    """An order to one agent."""

    number: int
    """By which it is known to both; no other command has it, of an earlier server neither."""
    order: Order


class Reply(msgspec.Struct, frozen=True):
    """The server's answer to a batch."""

    credit: int
    """Batches that the agent may send before it hears again."""
    acknowledged: int
    """Sequence of the batch that this answers."""
    resend: bool = False
    """Send what was not acknowledged again, and all communicators: the server is a new one."""
    commands: tuple[Command, ...] = ()
    """All that the agent has not given back yet."""
