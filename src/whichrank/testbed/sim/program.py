"""What the ranks of one pipeline rank do in an iteration, item by item: all replicas and shards do the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from whichrank.stage.schedules import Phase, Schedule


class Do(Enum):
    """What an item is."""

    OWN = "own"
    """The rank computes by itself."""
    SHARE = "share"
    """An all-reduce over the tensor-parallel group."""
    RECEIVE = "receive"
    SEND = "send"
    BEGIN = "begin"
    """A backward pass begins."""
    END = "end"
    """It is over."""
    REDUCE = "reduce"
    """Gradients, over the data-parallel group."""
    STEP = "step"


@dataclass(frozen=True)
class Item:
    """One thing to do.

    Attributes:
        do: What.
        phase: Of the block that it belongs to: 0 forward, 1 backward, 2 the optimizer.
        microbatch: Of the block.
        part: Of the block, in which own time falls: a layer.
        peer: Rank of the pipeline with which a message is exchanged.
        key: Of a message: what it carries and between which stages, the same at both ends.
    """

    do: Do
    phase: int = 2
    microbatch: int = 0
    part: int = 0
    peer: int = -1
    key: tuple[int, int, int] = (0, 0, 0)


def program_of(schedule: Schedule, rank: int, layers: int, *, shares: bool, reduces: bool) -> list[Item]:
    """The items of a pipeline rank.

    Args:
        schedule: In which order blocks are done.
        rank: Of the pipeline.
        layers: Of each stage.
        shares: Layers are split over a tensor-parallel group.
        reduces: Gradients are reduced.
    """
    items: list[Item] = []
    last = schedule.stages - 1
    rank_of = dict(zip(schedule.stage.tolist(), schedule.rank.tolist(), strict=True))
    for block in range(int(schedule.first[rank]), int(schedule.first[rank + 1])):
        stage, batch = int(schedule.stage[block]), int(schedule.microbatch[block])
        is_forward = schedule.phase[block] == Phase.FORWARD
        phase = int(not is_forward)
        step = 1 if is_forward else -1
        before, after = stage - step, stage + step
        if 0 <= before <= last and schedule.phase[block] != Phase.WEIGHT:
            items.append(Item(Do.RECEIVE, phase, batch, peer=rank_of[before], key=(phase, before, batch)))
        items += [] if is_forward else [Item(Do.BEGIN, phase, batch)]
        for part in range(layers):
            items.append(Item(Do.OWN, phase, batch, part))
            items += [Item(Do.SHARE, phase, batch, part)] if shares else []
        items += [] if is_forward else [Item(Do.END, phase, batch)]
        if 0 <= after <= last and schedule.phase[block] != Phase.WEIGHT:
            items.append(Item(Do.SEND, phase, batch, peer=rank_of[after], key=(phase, stage, batch)))
    items += [Item(Do.REDUCE)] if reduces else []
    return [*items, Item(Do.OWN), Item(Do.STEP)]
