"""How faults of the network between nodes are applied: slower ways, and ways on which nothing comes through."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import product

from whichrank.testbed.demo.load import PLACE, Load
from whichrank.testbed.demo.scene import Scene, Strike

_BESIDE = 2.0
"""Times the device time of a rank that is slow beside a slow link."""
_FLOWS = 8
_SHARE = 0.25
_PAUSE_S = 3.0
_OUT_S = 6.0
"""So long is a cable out that others stand in for."""


def slower_link(scene: Scene) -> Strike | None:
    """Limit what the node of a rank sends or is sent, or lose some; slow a rank of another node if so asked for."""
    victim = scene.plan.victims[0]
    if scene.nodes is None or not scene.wait_for_moment(victim):
        return None
    node = scene.node_of(victim)
    name, ranks = scene.plan.variant.name, scene.ranks_of(node)
    if scene.fault.name == "lossy-link":
        scene.nodes.lose(node, int(name.removesuffix("%")))
    elif scene.fault.name == "slow-inbound":
        scene.nodes.limit_inbound(node, name)
    else:
        scene.nodes.limit(node, name)
    strike = scene.strike_now(victim)
    strike.victims = ()
    if scene.fault.name == "slow-inbound":
        strike.targets = ranks
    else:
        strike.sources = ranks
    if scene.fault.do:
        other = next(v for v in scene.plan.victims if scene.node_of(v) != node)
        scene.order(other, scene.next_iteration(), PLACE, **asdict(Load(_BESIDE)))
        if scene.wait_until_now(other) is None:
            return None
        strike.victims = (other,)
    return strike


def broken_path(scene: Scene) -> Strike | None:
    """From now on nothing comes through: to and from a node, from one node to another, over a switch, of one flow."""
    victim = scene.plan.victims[0]
    if scene.nodes is None or not scene.wait_for_moment(victim):
        return None
    nodes, node = range(scene.nodes.count), scene.node_of(victim)
    name = scene.fault.name
    far = _far(scene, node) if name in ("reroute", "dead-spine", "partition") else []
    flow = None
    if name in ("lost-flow", "one-way"):  # where something flows, or nobody would miss it
        flow = scene.nodes.busiest_flow([node], [n for n in nodes if n != node], scene.hub.connected())
        if flow is None:
            return None
    strike = scene.strike_now(victim)
    strike.victims = ()
    if name == "reroute":
        put_back = scene.nodes.take_out(victim)
        strike.undo = (_OUT_S, put_back)
    elif flow is not None:
        other = scene.node_of(flow.target)
        scene.nodes.drop(node, other, flow.ports if name == "lost-flow" else None)
        strike.pairs = _ordered([flow[:2]]) if name == "lost-flow" else _between(scene, [node], [other])
    elif name in ("unplugged", "mute-node"):
        (scene.nodes.unplug if name == "unplugged" else scene.nodes.mute)(node)
        strike.candidates = scene.ranks_of(node)
        strike.pairs = _between(scene, [node], [n for n in nodes if n != node])
    else:  # a spine that swallows all, or all of them
        scene.nodes.swallow(None if name == "partition" else victim)
        near = [n for n in nodes if n not in far]
        strike.pairs = _between(scene, near, far)
    return strike


def others_traffic(scene: Scene) -> Strike | None:
    """From now on ways are shared with the flows of others, or slow now and then."""
    victim = scene.plan.victims[0]
    if scene.nodes is None or not scene.wait_for_moment(victim):
        return None
    node, name = scene.node_of(victim), scene.fault.name
    far = _far(scene, node) if name != "link-jitter" else []
    near = [n for n in range(scene.nodes.count) if n not in far]
    spine = None
    if name == "congested-spine":
        flow = scene.nodes.busiest_flow(near, far, scene.hub.connected())
        if flow is None:
            return None
        spine = scene.nodes.spine_of(flow, scene.node_of(flow.source), scene.node_of(flow.target))
        if spine is None:
            return None
    strike = scene.strike_now(victim)
    strike.victims, strike.sources = (), scene.ranks_of(node)
    # Acknowledgements stand in the same queues as data: what comes in is slower too.
    if name == "congested":
        other = far[int(scene.plan.site * len(far))]
        strike.keep.append(scene.nodes.crowd(node, other, _FLOWS))
        strike.targets = scene.ranks_of(other)
        strike.pairs = _between(scene, [node, other], range(scene.nodes.count))
    elif spine is not None:
        strike.keep.append(scene.nodes.crowd_up(scene.nodes.leaf_of(node), spine, _FLOWS))
        strike.sources, strike.pairs = (), _between(scene, near, far)
    else:
        strike.keep.append(scene.nodes.limit_now_and_then(node, _SHARE, _PAUSE_S))
    return strike


def _far(scene: Scene, node: int) -> list[int]:
    """Nodes to which the way goes over an upper switch.

    Raises:
        ValueError: There are none.
    """
    assert scene.nodes is not None
    far = [n for n in range(scene.nodes.count) if scene.nodes.leaf_of(n) != scene.nodes.leaf_of(node)]
    if not far:
        raise ValueError("all nodes hang on one leaf, so no way goes over a spine (--leaves 2)")
    return far


def _between(scene: Scene, some: Iterable[int], others: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """All pairs of a rank on some nodes and one on others."""
    return _ordered(
        pair for one, other in product(some, others) for pair in product(scene.ranks_of(one), scene.ranks_of(other))
    )


def _ordered(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted({(min(pair), max(pair)) for pair in pairs}))
