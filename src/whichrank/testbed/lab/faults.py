"""Faults that the lab's jobs have besides those of the demo: of the network, of files and data, and in sequence."""

from __future__ import annotations

from whichrank.testbed.demo.fault import INCONSISTENT, NOT_ENTERED, STOPPED_ANYWHERE, Fault, Variant
from whichrank.testbed.demo.slow import COMPUTE_SLOW, LINK_SLOW

_NODES = 4
_NO_ANSWER = "Ranks stand in operations that need the way; the kernels behind it send again, with growing pauses."


def _broken(
    name: str, description: str, causes: tuple[str, ...] = ("transport",), tool: str = "nft", leaves: int = 1
) -> Fault:
    variants = (Variant("for-good", "cut", _NO_ANSWER),)
    return Fault(
        name, description, "outside", "path", variants, causes=causes, hard=True, nodes=_NODES, leaves=leaves, tool=tool
    )


def _crowded(name: str, description: str, variant: str, leaves: int = 1) -> Fault:
    variants = (Variant(variant, "slow-link", "Transfers over it take longer, by their share of the rate."),)
    return Fault(name, description, "outside", "traffic", variants, causes=LINK_SLOW, nodes=_NODES, leaves=leaves)


LAB: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        _broken("unplugged", "The cables of one of four nodes are taken out.", ("node_lost", "transport"), tool=""),
        _broken("mute-node", "What one of four nodes sends is accepted and never delivered; it is still sent to.",
                ("node_lost", "transport")),
        _broken("one-way", "What one node sends to another is lost; the other direction is well."),
        _broken("lost-flow", "The packets of one connection between two ranks are lost, in one direction."),
        _broken("dead-spine", "One of the upper switches swallows all, and no route goes round it.",
                leaves=2),
        _broken("partition", "Nothing passes from one half of the nodes to the other.", leaves=2),
        _crowded("congested", "What one node sends to others shares its cable with eight other flows.", "8-flows",
                 leaves=2),
        _crowded("congested-spine", "Eight other flows share a cable from a lower to an upper switch.", "8-flows",
                 leaves=2),
        _crowded("link-jitter", "What one node sends is limited to a quarter for three seconds in six.", "3-s-of-6"),
        Fault("stuck-io", "Reads from a pipe into which nobody writes.", "in-program", "op",
              (Variant("pipe", "hang", "Asleep in the kernel, in pipe_read; the others stand still."),),
              do="read-pipe", causes=NOT_ENTERED, reasons=("in user code",)),
        Fault("stalled-loader", "A data loader waits for its worker, which does not answer.", "in-program", "op",
              (Variant("worker", "hang", "Asleep in the data loader; the others stand still."),),
              do="wait-for-batch", causes=NOT_ENTERED, reasons=("waiting for data",)),
        Fault("ahead", "One rank leaves an iteration out, and is one ahead of all others from then on.", "in-program",
              "ahead", (Variant("one", "hang-or-abort", "All goes on, one iteration apart, until the log."),),
              do="skip-iteration", causes=INCONSISTENT),
        Fault("wrong-peer", "Sends to the neighbour of the rank that waits for it.", "in-program", "op",
              (Variant("neighbour", "hang", "Nobody receives it, and the rank that waits for it waits for ever; the"
                       " ring stops within a turn.", sites="send"),), do="wrong-peer", causes=INCONSISTENT, hard=True),
        Fault("log-gather", "Every tenth iteration all ranks gather their logs, and one of them writes them.",
              "healthy", "errand", (Variant("objects", "none", "Pauses of half a second in a few iterations."),)),
        Fault("slow-then-stop", "The device of a rank takes twice as long, and some seconds later it is stopped.",
              "outside", "slow-then-stop", (Variant("x2", "slow-then-hang", "Slower, then all stand still."),),
              do="drag", causes=STOPPED_ANYWHERE, reasons=("stopped",)),
        Fault("two-causes", "The device of one rank takes twice as long, and another one waits for its data.",
              "in-program", "drag", (Variant("x2", "slow", ""),), do="drag", causes=COMPUTE_SLOW),
        Fault("elastic-join", "The last node joins while the others train, and torchrun starts all ranks again.",
              "healthy", "join", (Variant("torchrun", "pause", "Ranks end by SIGTERM; new ones train some seconds"
              " later."),),
              nodes=_NODES, recovers=True, is_elastic=True),
        Fault("reroute", "A cable between two switches is out for six seconds, and routes go round it.", "healthy",
              "path", (Variant("six-seconds", "none", "A few packets are lost and sent again."),),
              nodes=_NODES, leaves=2, spines=2, recovers=True),
    )
}  # fmt: skip
