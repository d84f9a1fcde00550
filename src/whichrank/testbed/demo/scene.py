"""What a recipe works with, and what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from whichrank.testbed.demo.fault import Fault
from whichrank.testbed.demo.hub import Hub
from whichrank.testbed.demo.layout import Layout
from whichrank.testbed.demo.plan import Plan
from whichrank.testbed.demo.seat import Order

_AHEAD = 3


class Flow(NamedTuple):
    """One direction of a connection: ranks, and the ports of the sender and of the receiver."""

    source: int
    target: int
    ports: tuple[int, int]


class Closeable(Protocol):
    """What ends when it is closed."""

    def close(self) -> None:
        """End it."""


class Nodes(Protocol):
    """Nodes with a network between them that can be hurt; see `whichrank.testbed.lab.network.Network`."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def cgroup_prefix(self) -> str:
        """What names of control groups begin with, so that they are removed with the nodes."""

    def limit(self, number: int, rate: str) -> None:
        """From now on a node sends no faster."""

    def limit_inbound(self, number: int, rate: str) -> None:
        """From now on a node is sent to no faster."""

    def lose(self, number: int, percent: int) -> None:
        """From now on this share of what a node sends is lost."""

    def leaf_of(self, number: int) -> int:
        """The switch that a node hangs on."""

    def unplug(self, number: int) -> None:
        """Take the cables of a node out."""

    def mute(self, number: int) -> None:
        """From now on nothing that a node sends is delivered."""

    def drop(self, source: int, target: int, ports: tuple[int, int] | None = None) -> None:
        """From now on nothing gets from one node to another, or nothing of one flow."""

    def busiest_flow(self, sources: Iterable[int], targets: Iterable[int], ranks: Mapping[int, int]) -> Flow | None:
        """Of the connections of ranks on some nodes to others the one over which most is sent now; None: nothing is."""

    def spine_of(self, flow: Flow, source: int, target: int) -> int | None:
        """Over which upper switch a flow goes from one node to another; None: over none."""

    def crowd(self, source: int, target: int, flows: int) -> Closeable:
        """From now on so many flows of others go from one node to another."""

    def crowd_up(self, leaf: int, spine: int, flows: int) -> Closeable:
        """From now on so many flows of others go from a lower switch to an upper one."""

    def limit_now_and_then(self, number: int, share: float, every_s: float) -> Closeable:
        """From now on a node sends no faster than a share of its rate, in every second span of this length."""

    def swallow(self, spine: int | None) -> None:
        """From now on nothing passes an upper switch, or any of them."""

    def take_out(self, number: int) -> Callable[[], None]:
        """Take a cable between two switches out, and let routes go round it; what is returned puts it back."""


@dataclass
class Strike:
    """What was done, as far as it is known.

    Args:
        victims: ranks at fault.
        at_ns: CLOCK_MONOTONIC.
        iteration: of the victim.
        candidates: ranks that a verdict may name too.
        note: what was done another way than the catalogue says.
        reasons: right reasons then; empty means those of the catalogue.
        undo: what has to be done some time later, and when (seconds).
        keep: what is to be closed at the end.
        sources: ranks of which what they send to other nodes was slowed.
        targets: the same of what other nodes send to them.
        pairs: of ranks between which nothing comes through, the lower rank first.
    """

    victims: tuple[int, ...]
    at_ns: int
    iteration: int
    candidates: tuple[int, ...] = ()
    note: str = ""
    reasons: tuple[str, ...] = ()
    undo: tuple[float, Callable[[], None]] | None = None
    keep: list[Closeable] = field(default_factory=list)
    sources: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Scene:
    """All that a recipe works with.

    Args:
        fault: from the catalogue.
        plan: what was drawn.
        hub: the ranks.
        layout: of the job.
        hold_s: how long errands last that the caller has to size (late checkpoint).
        nodes: that the job runs on, if they are network namespaces.
        quiet_s: that the job runs undisturbed before anything is done to it, so that methods know what is usual.
    """

    fault: Fault
    plan: Plan
    hub: Hub
    layout: Layout
    hold_s: float
    nodes: Nodes | None = None
    quiet_s: float = 0.0

    @property
    def cgroup_prefix(self) -> str:
        """What names of control groups begin with."""
        return self.nodes.cgroup_prefix if self.nodes else "job-"

    def order(self, rank: int, iteration: int, place: int | str, do: str = "", **params: object) -> None:
        """Send an order to a rank."""
        variant = self.plan.variant.name
        self.hub.order(rank, Order(do or self.fault.do or variant, variant, iteration, place, dict(params)))

    def wait_under_way(self) -> bool:
        """Wait until every rank has said what its operations are."""
        if not self.hub.wait_for(lambda: len(self.hub.sites) == len(self.plan.victims)):
            return False
        return not self.quiet_s or self.hub.sleep(self.quiet_s)

    def next_iteration(self) -> int:
        """The drawn iteration, or a later one that every rank still has before it."""
        return max(self.plan.iteration, max(self.hub.iterations.values(), default=0) + _AHEAD)

    def wait_until_now(self, rank: int) -> Strike | None:
        """Wait until the rank says that it does what it was reported."""
        if not self.hub.wait_for(lambda: rank in self.hub.events):
            return None
        event = self.hub.events[rank]
        return Strike((rank,), int(event["ns"]), int(event["iteration"]))

    def strike_now(self, rank: int) -> Strike:
        """A blow from outside that lands now."""
        return Strike((rank,), time.monotonic_ns(), self.hub.iterations.get(rank, -1))

    def wait_for_moment(self, rank: int) -> bool:
        """Wait for the drawn moment of this rank; False if the job ended first."""
        if not self.wait_under_way():
            return False
        iteration = self.next_iteration()
        reached = self.hub.wait_for(lambda: self.hub.iterations.get(rank, 0) >= iteration)
        return reached and self.hub.sleep(self.plan.delay_s)

    def node_of(self, rank: int) -> int:
        """The number of its node, 0 without nodes."""
        return rank * (self.nodes.count if self.nodes else 1) // len(self.plan.victims)

    def ranks_of(self, node: int) -> tuple[int, ...]:
        """The ranks of a node."""
        return tuple(rank for rank in range(len(self.plan.victims)) if self.node_of(rank) == node)
