"""The network as values: who hangs where, and the paths while cables are out."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.errors import UsageError
from whichrank.testbed.lab.topology import LEAF, NODE, SPINE, Cable, Place, Topology


def paths(topology: Topology, source: Place, target: Place, out: Collection[Cable] = ()) -> list[tuple[Place, ...]]:
    """All paths that packets can take by the routes, each as its places; a loop would never end."""
    routes = {place: {route.to: route.hops for route in found} for place, found in topology.routes(out).items()}

    def onward(place: Place, been: tuple[Place, ...]) -> list[tuple[Place, ...]]:
        assert place not in been, "a loop"
        been = (*been, place)
        if place == target:
            return [been]
        return [path for hop, _ in routes[place].get(target, ()) for path in onward(hop, been)]

    return onward(source, ())


def node(number: int) -> Place:
    return Place(NODE, number)


def test_nodes_of_one_leaf_meet_there_and_others_over_every_spine() -> None:
    topology = Topology(nodes=4, leaves=2, spines=3)
    assert [tuple(map(str, path)) for path in paths(topology, node(0), node(1))] == [("node-0", "leaf-0", "node-1")]
    over = {path[2].number for path in paths(topology, node(0), node(3))}
    assert over == {0, 1, 2}


def test_two_ports_are_two_planes() -> None:
    # GIVEN nodes with two ports on two leaves
    topology = Topology(nodes=4, leaves=2, spines=2, ports=2)
    # THEN each leaf is a path between any two of them, and no spine is needed
    assert {path[1:-1] for path in paths(topology, node(0), node(3))} == {(Place(LEAF, 0),), (Place(LEAF, 1),)}
    assert [str(cable) for cable in topology.cables_of(node(0))] == ["node-0:leaf-0", "node-0:leaf-1"]


@given(
    st.integers(1, 8), st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), st.sets(st.integers(0, 40), max_size=8)
)
def test_paths_are_up_and_down_and_miss_no_node_that_can_be_reached(
    nodes: int, leaves: int, spines: int, ports: int, out: set[int]
) -> None:
    topology = Topology(nodes, leaves, spines, min(ports, leaves))
    cut = [cable for number, cable in enumerate(topology.cables) if number in out]
    leaves_of = {
        place: {c.upper for c in topology.cables_of(place) if c not in cut}
        for place in topology.places
        if place.kind == NODE
    }
    spines_of = {
        place: {c.upper for c in topology.cables_of(place) if c.lower == place and c not in cut}
        for place in topology.places
        if place.kind == LEAF
    }
    for source in leaves_of:
        for target in leaves_of.keys() - {source}:
            found = paths(topology, source, target, cut)
            # a leaf that both have, or two leaves with a spine that both have
            shared = leaves_of[source] & leaves_of[target]
            joined = any(spines_of[a] & spines_of[b] for a in leaves_of[source] for b in leaves_of[target])
            assert bool(found) == bool(shared or joined)
            assert len({len(path) for path in found}) <= 1
            for path in found:
                kinds = [place.kind for place in path]
                assert kinds in ([NODE, LEAF, NODE], [NODE, LEAF, SPINE, LEAF, NODE])


def test_addresses_and_devices_are_each_held_once() -> None:
    topology = Topology(nodes=64, leaves=8, spines=8, ports=2)
    assert len({place.address for place in topology.places}) == len(topology.places)
    held = [end for cable in topology.cables for end in cable.ends]
    assert len(set(held)) == len(held)
    assert all(len(device) < 16 for _, device in held)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nodes": 0}, "a lab has 1 to 64 nodes, not 0"),
        ({"leaves": 33}, "a lab has 1 to 32 leaves, not 33"),
        ({"leaves": 1, "ports": 2}, "with one leaf a node has one port, not 2"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Topology(**wrong)
    assert caught.value.what == said
    assert caught.value.mend
