"""What the ranks of one pipeline rank do in an iteration, item by item: all replicas and shards do the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from whichrank.model.kinds import Kind
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Phase, Schedule

TP, DP, PP, WORLD, CP, EP = range(6)
"""Slots of communicators in a ring."""
FORWARD, BACKWARD, OPTIMIZER = 0, 1, 2


class Do(Enum):
    """What an item is."""

    OWN = "own"
    """The rank computes by itself."""
    SHARE = "share"
    """A collective."""
    RECEIVE = "receive"
    SEND = "send"
    BEGIN = "begin"
    """A backward pass begins."""
    END = "end"
    """It is over."""
    STEP = "step"


HAS_RECORD: Final = frozenset({Do.SHARE, Do.RECEIVE, Do.SEND})
"""Operations."""


@dataclass(frozen=True)
class Item:
    """One thing to do.

    Attributes:
        do: What.
        phase: FORWARD, BACKWARD or OPTIMIZER: of the block that it belongs to, or behind all blocks.
        microbatch: Of the block.
        part: Of the block, in which own time falls: a layer.
        slot: Of the communicator of an operation.
        kind: Of the operation.
        peer: Rank of the pipeline with which a message is exchanged.
        key: Of a message: what it carries and between which stages, the same at both ends.
    """

    do: Do
    phase: int = OPTIMIZER
    microbatch: int = 0
    part: int = 0
    slot: int = PP
    kind: Kind = Kind.ALL_REDUCE
    peer: int = -1
    key: tuple[int, int, int] = (0, 0, 0)


def program_of(schedule: Schedule, rank: int, layers: int, layout: Layout) -> list[Item]:
    """The items of a pipeline rank.

    A layer is computed in as many parts as it has operations of its own: with tensor parallelism an all-reduce, with
    context parallelism the gathering of the others' keys and values, with experts an exchange of tokens.

    Args:
        schedule: In which order blocks are done.
        rank: Of the pipeline.
        layers: Of each stage.
        layout: Of the job.
    """
    items: list[Item] = []
    last = schedule.stages - 1
    rank_of = dict(zip(schedule.stage.tolist(), schedule.rank.tolist(), strict=True))
    for block in range(int(schedule.first[rank]), int(schedule.first[rank + 1])):
        stage, batch = int(schedule.stage[block]), int(schedule.microbatch[block])
        is_forward, is_weight = schedule.phase[block] == Phase.FORWARD, schedule.phase[block] == Phase.WEIGHT
        phase, step = (FORWARD, 1) if is_forward else (BACKWARD, -1)
        before, after = stage - step, stage + step
        if 0 <= before <= last and not is_weight:
            key = phase, before, batch
            items.append(Item(Do.RECEIVE, phase, batch, kind=Kind.RECV, peer=rank_of[before], key=key))
        items += [] if is_forward else [Item(Do.BEGIN, phase, batch)]
        for layer in range(layers):
            items.append(Item(Do.OWN, phase, batch, layer))
            items += [Item(Do.SHARE, phase, batch, layer, slot, kind) for slot, kind in _of_a_layer(layout, phase)]
        items += [] if is_forward else [Item(Do.END, phase, batch)]
        if 0 <= after <= last and not is_weight:
            items.append(Item(Do.SEND, phase, batch, kind=Kind.SEND, peer=rank_of[after], key=(phase, stage, batch)))
    items += [Item(Do.SHARE, slot=DP)] if layout.dp * layout.cp > 1 else []
    items += [Item(Do.SHARE, slot=WORLD)] if layout.ranks > 1 else []  # the norm of the gradient
    return [*items, Item(Do.OWN), Item(Do.STEP)]


def _of_a_layer(layout: Layout, phase: int) -> list[tuple[int, Kind]]:
    """Slots and kinds of the operations behind the computing of a layer."""
    found: list[tuple[int, Kind]] = []
    found += [(CP, Kind.REDUCE_SCATTER if phase == BACKWARD else Kind.ALL_GATHER)] if layout.cp > 1 else []
    found += [(EP, Kind.ALL_TO_ALL)] if layout.ep > 1 else []
    found += [(TP, Kind.ALL_REDUCE)] if layout.tp > 1 else []
    return found
