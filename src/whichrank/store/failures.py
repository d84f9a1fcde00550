"""Operations that have failed, the latest of each rank."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

MOST_KEPT: Final = 64
"""Of each rank."""


class Failures:
    """By rank, at most `MOST_KEPT` of each.

    Attributes:
        ops: Rows of OPS.
        ends_ns: When they ended, by their host's clock.
    """

    def __init__(self) -> None:
        self.ops: dict[int, np.ndarray[Any, Any]] = {}
        self.ends_ns: dict[int, list[int]] = {}

    def add(self, rank: int, ops: np.ndarray[Any, Any], ends_ns: list[int]) -> None:
        """Operations of a rank, rows of OPS, and when they ended."""
        before = self.ops.get(rank)
        self.ops[rank] = ops if before is None else np.concatenate((before, ops))[-MOST_KEPT:]
        self.ends_ns[rank] = (self.ends_ns.get(rank, []) + ends_ns)[-MOST_KEPT:]

    def get_over(self, until_s: float) -> None:
        """What was issued until then is no news any more."""
        for rank, ops in self.ops.items():
            self.ops[rank] = ops[ops["issue_s"] > until_s]

    def forget(self, rank: int) -> None:
        """Those of a process that is no more."""
        self.ops.pop(rank, None)
        self.ends_ns.pop(rank, None)
