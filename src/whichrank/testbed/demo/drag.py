"""Makes a rank's computation longer: by a factor, in some layers, now and then, by garbage, by late data or by more.

From the start if its settings say so, else from the iteration of an order on. Function names are what a stack of the
rank shows, so they say what the process does and not the name of a fault.
"""

from __future__ import annotations

import gc
import time
from typing import Any, Protocol

from torch.utils.data import DataLoader, Dataset

from whichrank.testbed.demo.load import PLACE, Load
from whichrank.testbed.demo.seat import Seat


class Computing(Protocol):
    """What has a device."""

    def slow_down(self, factor: float, layers: int, phase: str) -> None:
        """From now on the device takes so many times as long in the first layers, and in one phase or in both."""


class Drag:
    """One rank's part of the load.

    Args:
        seat: where orders come from.
        settings: for the whole run, from `Seat.greet`: ``load``.
        stage: whose device time changes.
    """

    def __init__(self, seat: Seat, settings: dict[str, Any], stage: Computing) -> None:
        self._seat = seat
        self._stage = stage
        self._load = Load(**settings["load"]) if settings.get("load") else None
        self._since = 0

    @property
    def rows(self) -> float:
        """Of a batch, in proportion to the usual."""
        return self._load.rows if self._load else 1.0

    def at_start_of(self, iteration: int) -> None:
        """Do what is due before the first operation of `iteration`."""
        order = self._seat.order_at(iteration, PLACE)
        if order is not None:
            self._seat.report("now", iteration=iteration, do=order.do)
            self._load, self._since = Load(**order.params), iteration
        load = self._load
        if load is None:
            return
        passed = iteration - self._since - load.after
        is_on = not load.on or passed % (load.on + load.off) < load.on
        self._stage.slow_down(load.factor if is_on else 1.0, load.layers, load.phase)
        if is_on and load.data_s:
            next_batch(load.data_s)
        if is_on and load.objects:
            build_graph(load.objects)


class _Remote(Dataset[int]):
    """Data that is far away."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        time.sleep(self._seconds)
        return index


def next_batch(seconds: float) -> None:
    """Wait for the next batch of data."""
    for _ in DataLoader(_Remote(seconds), batch_size=None):
        pass


def build_graph(objects: int) -> None:
    """Make objects in cycles; the collector runs while they are made, and once more."""
    cells: list[list[Any]] = [[] for _ in range(objects)]
    for i, cell in enumerate(cells):
        cell.append(cells[i - 1])
    cells.clear()
    gc.collect()
