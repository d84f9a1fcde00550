"""What makes a rank's computation longer, as an order says it: without torch, for who gives orders. `drag` does it."""

from __future__ import annotations

from dataclasses import dataclass

PLACE = "compute"


@dataclass(frozen=True)
class Load:
    """What makes a rank slow.

    Args:
        factor: of the device time of its layers.
        layers: how many of them, from the first on; 0: all.
        phase: in which it is longer, ``forward`` or ``backward``; empty: in both.
        on: iterations in a row that are slow; 0: all.
        off: iterations in between.
        after: iterations before the first of them.
        data_s: that the next batch takes, before each iteration.
        rows: of its batch, in proportion to the usual.
        objects: in cycles, made in each iteration for the collector to find.
    """

    factor: float = 1.0
    layers: int = 0
    phase: str = ""
    on: int = 0
    off: int = 0
    after: int = 0
    data_s: float = 0.0
    rows: float = 1.0
    objects: int = 0
