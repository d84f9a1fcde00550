"""Operations, optimizer steps and backward passes of a job's latest iterations, of all ranks: to go through again."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np

from whichrank.locate.comparable import LongGroup, long_groups
from whichrank.locate.critical_path import Course
from whichrank.locate.events import course_of
from whichrank.model.iterations import PASS, STEP, Ints, Ops, Window

KEPT_OPS: Final = 1 << 18
"""More are kept only for the fewest iterations that say something."""
MOST_OPS: Final = 1 << 22
"""More are never kept: of a larger job nothing is gone through again."""
KEPT_STEPS: Final = 1 << 16
"""Optimizer steps, over all ranks; more where there are more ranks than that."""
KEPT_PASSES: Final = 1 << 18
"""Backward passes, over all ranks: of some iterations, where they have many microbatches."""
REPLAYED: Final = 12
"""Iterations that are gone through again, at most."""
FEWEST: Final = 4
"""Iterations for which more is kept and gone through."""


class LatestOps:
    """Kept in the order in which they came."""

    def __init__(self) -> None:
        self._ops: deque[tuple[int, Ops]] = deque()  # with the latest iteration that was over by then
        self._kept_ops = 0
        self._steps: deque[np.ndarray[Any, Any]] = deque()
        self._kept_steps = self._ranks = 0
        self._passes: deque[np.ndarray[Any, Any]] = deque()
        self._kept_passes = 0
        self._whole_from = 0  # the first iteration from which on no operation was let go

    def keep_steps(self, steps: np.ndarray[Any, Any]) -> None:
        """Take rows of STEP."""
        if not len(steps):
            return
        self._steps.append(steps)
        self._kept_steps += len(steps)
        self._ranks = max(self._ranks, int(steps["rank"].max()) + 1)
        wanted = max(KEPT_STEPS, (REPLAYED + 2) * self._ranks)
        while self._kept_steps - len(self._steps[0]) >= wanted:
            self._kept_steps -= len(self._steps.popleft())

    def keep_passes(self, passes: np.ndarray[Any, Any]) -> None:
        """Take rows of PASS."""
        if len(passes):
            self._passes.append(passes)
            self._kept_passes += len(passes)
        while self._passes and self._kept_passes - len(self._passes[0]) >= KEPT_PASSES:
            self._kept_passes -= len(self._passes.popleft())

    def passes(self) -> np.ndarray[Any, Any]:
        """Those that are kept, rows of PASS, sorted by rank and begin."""
        passes = np.concatenate([np.zeros(0, PASS), *self._passes])
        return passes[np.lexsort((passes["begin_ns"], passes["rank"]))]

    def keep_ops(self, ops: Ops, iteration: int) -> None:
        """Take operations.

        Args:
            ops: Of iterations that are over.
            iteration: The latest one of any rank that is over, by the number of the step that opens it.
        """
        if len(ops):
            self._ops.append((iteration, ops))
            self._kept_ops += len(ops)
        while len(self._ops) > 1 and (self._kept_ops > MOST_OPS or self._is_enough_without_first(iteration)):
            until, gone = self._ops.popleft()
            self._whole_from = until + 1
            self._kept_ops -= len(gone)

    def _is_enough_without_first(self, iteration: int) -> bool:
        until, first = self._ops[0]
        return self._kept_ops - len(first) >= KEPT_OPS and not 0 <= iteration - until <= FEWEST

    def forget(self) -> None:
        """A rank's process was replaced: iterations from before that cannot be gone through with it."""
        self._ops.clear()
        self._steps.clear()
        self._passes.clear()
        self._kept_ops = self._kept_steps = self._kept_passes = self._whole_from = 0

    def comms(self) -> Ints:
        """Communicators of the operations that came last."""
        return np.flatnonzero(np.bincount(self._ops[-1][1]["comm"])) if self._ops else np.zeros(0, np.int64)

    def course(self, window: Window, comm_size: Ints, most_ops: int | None = None) -> Course | None:
        """The latest iterations of the window, as events; None if there are not two in a row.

        Args:
            window: Whose ranks are numbered.
            comm_size: Of each communicator.
            most_ops: Operations that are gone through, as many as are kept if it is None; more only for the fewest
                iterations that say something.
        """
        latest = self._latest(window, most_ops)
        return None if latest is None else course_of(*latest, comm_size)

    def long_groups(self, window: Window, comm_size: Ints) -> list[LongGroup]:
        """Communicators that take longer than comparable ones in the latest iterations of the window.

        Args:
            window: Whose ranks are looked at.
            comm_size: Of each communicator.
        """
        latest = self._latest(window)
        return [] if latest is None else long_groups(*latest, comm_size, window.iteration_s)

    def _latest(self, window: Window, most_ops: int | None = None) -> tuple[list[Ops], np.ndarray[Any, Any]] | None:
        """Operations and steps of the latest iterations of the window; None if there are not two in a row."""
        last = int(window.iteration[-1]) + 1
        steps = np.concatenate([np.zeros(0, STEP), *self._steps])
        steps = steps[np.isin(steps["rank"], window.ranks) & (steps["counter"] <= last)]
        first = max(last - REPLAYED, int(window.iteration[0]), self._whole_from)
        known, count = np.unique(steps["counter"][steps["counter"] >= first], return_counts=True)
        whole = known[count == len(window.ranks)]
        # The latest run of numbers without a gap.
        breaks = np.flatnonzero(np.diff(whole) != 1)
        whole = whole[breaks[-1] + 1 :] if len(breaks) else whole
        if len(whole) < 2:
            return None
        whole = whole[-self._as_many(steps, whole, KEPT_OPS if most_ops is None else most_ops) :]
        steps = steps[np.isin(steps["counter"], whole)]
        return [part for iteration, part in self._ops if iteration >= whole[0]], steps

    @staticmethod
    def _as_many(steps: np.ndarray[Any, Any], whole: Ints, most_ops: int) -> int:
        """How many iterations are gone through: fewer where there is much to do in each; and the one that opens."""
        of_rank = steps[(steps["rank"] == steps["rank"][0]) & np.isin(steps["counter"], whole)]
        each = int(np.ptp(of_rank["ordinal"])) // (len(whole) - 1) * len(np.unique(steps["rank"]))
        return int(np.clip(most_ops // max(each, 1), FEWEST, REPLAYED)) + 1
