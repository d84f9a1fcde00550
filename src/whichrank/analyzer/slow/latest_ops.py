"""Operations and optimizer steps of a job's latest iterations, of all ranks: what can be gone through again."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from whichrank.locate.critical_path import Course, course_of
from whichrank.model.iterations import OP, STEP, Ints, Window

KEPT_OPS: Final = 1 << 18
KEPT_STEPS: Final = 1 << 16
REPLAYED: Final = 12
"""Iterations that are gone through again, at most."""


class LatestOps:
    """Kept in the order in which they came."""

    def __init__(self) -> None:
        self._ops: list[np.ndarray[Any, Any]] = []
        self._steps: list[np.ndarray[Any, Any]] = []

    def keep_steps(self, steps: np.ndarray[Any, Any]) -> None:
        """Take rows of STEP."""
        if len(steps):
            self._steps.append(steps)
        while len(self._steps) > 1 and sum(map(len, self._steps[1:])) >= KEPT_STEPS:
            self._steps.pop(0)

    def keep_ops(self, ops: np.ndarray[Any, Any]) -> None:
        """Take rows of OP."""
        if len(ops):
            self._ops.append(ops)
        kept = sum(map(len, self._ops))
        while len(self._ops) > 1 and kept - len(self._ops[0]) >= KEPT_OPS:
            kept -= len(self._ops.pop(0))

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        self._steps = [steps[steps["rank"] != rank] for steps in self._steps]
        self._ops = [ops[ops["rank"] != rank] for ops in self._ops]

    def comms(self) -> Ints:
        """Communicators of the operations that came last."""
        return np.unique(self._ops[-1]["comm"]) if self._ops else np.zeros(0, np.int64)

    def course(self, window: Window, comm_size: Ints) -> Course | None:
        """The latest iterations of the window, as events; None if there are not two in a row.

        Args:
            window: Whose ranks are numbered.
            comm_size: Of each communicator.
        """
        last = int(window.iteration[-1]) + 1
        steps = np.concatenate([np.zeros(0, STEP), *self._steps])
        steps = steps[np.isin(steps["rank"], window.ranks) & (steps["counter"] <= last)]
        first = max(last - REPLAYED, int(window.iteration[0]))
        known, count = np.unique(steps["counter"][steps["counter"] >= first], return_counts=True)
        whole = known[count == len(window.ranks)]
        # The latest run of numbers without a gap.
        breaks = np.flatnonzero(np.diff(whole) != 1)
        whole = whole[breaks[-1] + 1 :] if len(breaks) else whole
        if len(whole) < 2:
            return None
        steps = steps[np.isin(steps["counter"], whole)]
        opening = steps[np.argmin(steps["counter"])]
        return course_of(self._since(int(opening["rank"]), int(opening["ordinal"])), steps, comm_size)

    def _since(self, rank: int, ordinal: int) -> np.ndarray[Any, Any]:
        """The latest operations, from before this one of this rank on."""
        parts = [np.zeros(0, OP)]
        reached = False
        for part in reversed(self._ops):
            parts.append(part)
            if reached:
                break  # one part more, for ranks that were ahead
            reached = bool((part["ordinal"][part["rank"] == rank] <= ordinal).any())
        return np.concatenate(parts[::-1])
