"""A leaf-spine (Clos) network as values: places, cables between them, addresses, and the routes while cables are out.

Every place has one address, on all of its devices, and hands packets on by host routes: straight down where it is
joined to their destination, else up by all paths that are equally long. Nothing is made here; `network` does that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final

from whichrank.errors import UsageError

MOST_NODES: Final = 64
MOST_SWITCHES: Final = 32
MOST_PORTS: Final = 2
NODE, LEAF, SPINE = "node", "leaf", "spine"
_KINDS: Final = (NODE, LEAF, SPINE)


@dataclass(frozen=True, order=True)
class Place:
    """A node or a switch; its number counts from 0 among those of its kind."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.number}"

    @property
    def address(self) -> str:
        """IPv4."""
        return f"10.77.{_KINDS.index(self.kind)}.{self.number + 1}"


@dataclass(frozen=True, order=True)
class Cable:
    """Joins a lower place to an upper one, each by a device of its own."""

    lower: Place
    upper: Place
    port: int = 0
    """Of a node: 0 or 1."""

    def __str__(self) -> str:
        return f"{self.lower}:{self.upper}"

    @property
    def ends(self) -> tuple[tuple[Place, str], tuple[Place, str]]:
        """Place and device of the lower and the upper end."""
        below = f"eth{self.port}" if self.lower.kind == NODE else f"up{self.upper.number}"
        return (self.lower, below), (self.upper, f"{self.lower.kind}{self.lower.number}")

    def device(self, place: Place) -> str:
        """By which this place holds it."""
        return dict(self.ends)[place]

    def other(self, place: Place) -> Place:
        """The place at its other end."""
        return self.upper if place == self.lower else self.lower


@dataclass(frozen=True)
class Route:
    """To a node, over one or several next places that are equally near to it.

    Attributes:
        hops: Next places and the devices to them; the node itself for a neighbour.
    """

    to: Place
    hops: tuple[tuple[Place, str], ...]


@dataclass(frozen=True)
class Topology:
    """Which cables there are. A node's port p hangs on the leaf p after its first, so two ports are two planes.

    Raises:
        UsageError: No such network can be.
    """

    nodes: int = 4
    leaves: int = 2
    spines: int = 2
    ports: int = 1

    def __post_init__(self) -> None:
        limits = {"nodes": MOST_NODES, "leaves": MOST_SWITCHES, "spines": MOST_SWITCHES, "ports": MOST_PORTS}
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise UsageError(f"a lab has 1 to {most} {name}, not {getattr(self, name)}", mend=f"--{name} 2")
        if self.ports > self.leaves:
            raise UsageError(f"with one leaf a node has one port, not {self.ports}", mend="--leaves 2")

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Nodes first."""
        counts = zip(_KINDS, (self.nodes, self.leaves, self.spines), strict=True)
        return tuple(Place(kind, number) for kind, count in counts for number in range(count))

    @cached_property
    def cables(self) -> tuple[Cable, ...]:
        """Those of the nodes first."""
        return tuple(self._cables())

    def _cables(self) -> Iterator[Cable]:
        for node, port in product(range(self.nodes), range(self.ports)):
            leaf = (node * self.leaves // self.nodes + port) % self.leaves
            yield Cable(Place(NODE, node), Place(LEAF, leaf), port)
        for leaf, spine in product(range(self.leaves), range(self.spines)):
            yield Cable(Place(LEAF, leaf), Place(SPINE, spine))

    def cables_of(self, place: Place) -> tuple[Cable, ...]:
        """All that end at this place."""
        return tuple(cable for cable in self.cables if place in (cable.lower, cable.upper))

    def routes(self, out: Collection[Cable] = ()) -> dict[Place, tuple[Route, ...]]:
        """Of every place to every node that it can reach while these cables are out, by the shortest paths."""
        up = [cable for cable in self.cables if cable not in out]
        paths: dict[Place, dict[Place, _Paths]] = {place: {} for place in self.places}
        for kind in (NODE, LEAF):  # down, first from the leaves and then from the spines
            for cable in (c for c in up if c.lower.kind == kind):
                below = {node: found.length for node, found in paths[cable.lower].items()}
                for node, length in {cable.lower: 0, **below}.items():
                    if node.kind == NODE:
                        _offer(paths[cable.upper], node, length + 1, cable)
        for kind in (LEAF, NODE):  # up, to where a path leads down
            above = {place: {node: found.length for node, found in paths[place].items()} for place in self.places}
            for cable in (c for c in up if c.lower.kind == kind):
                for node, length in above[cable.upper].items():
                    if node != cable.lower:
                        _offer(paths[cable.lower], node, length + 1, cable)
        return {
            place: tuple(
                Route(node, tuple((cable.other(place), cable.device(place)) for cable in found.cables))
                for node, found in sorted(to.items())
            )
            for place, to in paths.items()
        }


@dataclass
class _Paths:
    """The shortest ways to a node so far."""

    length: int
    cables: list[Cable]


def _offer(to: dict[Place, _Paths], node: Place, length: int, cable: Cable) -> None:
    known = to.get(node)
    if known is None or length < known.length:
        to[node] = _Paths(length, [cable])
    elif length == known.length:
        known.cables.append(cable)
