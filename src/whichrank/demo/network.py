"""Faults of the network between nodes, on which nothing comes through any more: entries like those of the catalogue."""

from __future__ import annotations

from whichrank.demo.fault import Fault, Variant

_NODES = 4
_NO_ANSWER = "Ranks stand in operations that need the way; the kernels behind it send again, with growing pauses."


def _broken(name: str, description: str, causes: tuple[str, ...] = ("transport",), tool: str = "nft") -> Fault:
    variants = (Variant("for-good", "cut", _NO_ANSWER),)
    return Fault(name, description, "outside", "way", variants, causes=causes, hard=True, nodes=_NODES, tool=tool)


NETWORK: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        _broken("unplugged", "The cables of one of four nodes are taken out.", ("node_lost", "transport"), tool=""),
        _broken("mute-node", "What one of four nodes sends is accepted and never delivered; it is still sent to.",
                ("node_lost", "transport")),
        _broken("one-way", "What one node sends to another is lost; the other direction is well."),
        _broken("lost-flow", "The packets of one connection between two ranks are lost, in one direction."),
        _broken("dead-spine", "One of the upper switches swallows all, and no route goes round it."),
        _broken("partition", "Nothing passes from one half of the nodes to the other."),
        Fault("reroute", "A cable between two switches is out for six seconds, and routes go round it.", "healthy",
              "way", (Variant("six-seconds", "none", "A few packets are lost and sent again."),), nodes=_NODES,
              recovers=True),
    )
}  # fmt: skip
