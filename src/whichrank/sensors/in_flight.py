"""An operation that the Python sensor has seen begin and not end."""

from __future__ import annotations

import weakref
from typing import Any

from whichrank.sensors.abi import Op


class InFlight:
    """One operation that has not ended."""

    __slots__ = ("filled", "gloo", "op", "ring", "watched", "work")

    def __init__(self, ring: int, op: Op, gloo: bool) -> None:
        self.ring, self.op, self.gloo = ring, op, gloo
        self.work: Any = None  # the work object of a collective
        self.watched: tuple[int, weakref.ref[Any]] | None = None  # id of and reference to that of a send or receive
        self.filled: tuple[int, ...] = ()  # addresses of the storages that a collective fills, for wait_tensor
