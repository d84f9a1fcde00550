"""Operations of ranks as columns: those of the latest time, as many as there is room for."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.kinds import Kind
from whichrank.model.picture import Ints
from whichrank.model.telemetry import Batch
from whichrank.store.store import Store

SPAN: Final = np.dtype(
    [("rank", "i4"), ("comm", "i4"), ("kind", "u1"), ("open", "?"), ("counter", "i8"), ("start_s", "f8"),
     ("end_s", "f8"), ("waited_s", "f8")]
)  # fmt: skip
"""An operation of a rank, on the analyzer's clock; `open`: it has not ended, and `end_s` is when the rank was read."""

STEP: Final = np.dtype([("rank", "i4"), ("iteration", "i8"), ("at_s", "f8")])
"""The beginning of an iteration of a rank: the end of the optimizer step before."""

MOST_STEPS: Final = 1 << 20

Spans = NDArray[Any]


class SpanBuffer:
    """Takes the completed operations of batches; the oldest are dropped when there are too many.

    Args:
        most: Operations that are kept at least, if there are so many. Up to twice as many may be held for a moment.

    Attributes:
        seen: Operations that came.
        since_s: The latest end of an operation that was dropped; -inf while none was.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[Spans] = []
        self._steps: list[Spans] = []
        self._held = 0
        self.seen = 0
        self.since_s = -np.inf

    def add(self, batch: Batch, store: Store, first: Ints) -> None:
        """Take what a batch holds.

        Args:
            batch: The analyzer was fed it just now.
            store: Of the analyzer.
            first: Ranks whose operations are dropped last.
        """
        rows = batch.record_rows()
        rows = rows[(rows["rank"] >= 0) & (rows["rank"] < store.ranks.size)]
        is_step = rows["row"]["kind"] == Kind.STEP
        if is_step.any():
            self._steps = [*self._steps, self._steps_of(rows[is_step], store)]
            if sum(map(len, self._steps)) > 2 * MOST_STEPS:
                self._steps = [np.concatenate(self._steps)[-MOST_STEPS:]]
        rows = rows[rows["row"]["kind"] < Kind.STEP]
        comm = store.comms.index(rows["comm"])
        rows, comm = rows[comm >= 0], comm[comm >= 0]
        if not len(rows):
            return
        spans = np.zeros(len(rows), SPAN)
        row, offset_s = rows["row"], store.ranks.offset_s[rows["rank"]]
        for name in ("kind", "counter"):
            spans[name] = row[name]
        spans["rank"], spans["comm"] = rows["rank"], comm
        spans["start_s"] = row["t_issue_ns"] / 1e9 + offset_s
        spans["end_s"] = row["t_end_ns"] / 1e9 + offset_s
        spans["waited_s"] = row["wait_us"] / 1e6
        self._parts.append(spans)
        self._held += len(spans)
        self.seen += len(spans)
        if self._held > 2 * self._most:
            self._drop(first)

    def all(self) -> Spans:
        """All that are held."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0] if self._parts else np.zeros(0, SPAN)

    def steps(self) -> Spans:
        """Beginnings of iterations, rows of STEP."""
        if len(self._steps) > 1:
            self._steps = [np.concatenate(self._steps)]
        return self._steps[0] if self._steps else np.zeros(0, STEP)

    @staticmethod
    def _steps_of(rows: NDArray[Any], store: Store) -> Spans:
        steps = np.zeros(len(rows), STEP)
        steps["rank"], steps["iteration"] = rows["rank"], rows["row"]["counter"]
        steps["at_s"] = rows["row"]["t_issue_ns"] / 1e9 + store.ranks.offset_s[rows["rank"]]
        return steps

    def _drop(self, first: Ints) -> None:
        kept, dropped_s = fitting(self.all(), first, self._most)
        self.since_s = max(self.since_s, dropped_s)
        self._parts, self._held = [kept], len(kept)


def open_spans(ops: NDArray[Any], now_s: float) -> Spans:
    """What is under way, up to now.

    Args:
        ops: Rows of OPS.
        now_s: The analyzer's time.
    """
    ops = ops[~ops["failed"]]
    spans = np.zeros(len(ops), SPAN)
    for name in ("rank", "comm", "kind", "counter"):
        spans[name] = ops[name]
    spans["open"], spans["start_s"] = True, ops["issue_s"]
    spans["end_s"] = np.maximum(ops["issue_s"], now_s)
    return spans


def fitting(spans: Spans, first: Ints, most: int) -> tuple[Spans, float]:
    """So many of these, and the end of the latest that is not among them (-inf if all are).

    What is under way and the latest operations of the ranks in question get half of the room or more, the latest
    operations of the others get the rest. Example: there are 10 operations of rank 3, which is in question, and 90 of
    others, with room for 40. All 10 of rank 3 are kept, and the latest 30 of the others.

    Args:
        spans: Rows of SPAN.
        first: Ranks in question.
        most: How many.
    """
    if len(spans) <= most:
        return spans, -np.inf
    mine = np.isin(spans["rank"], first) | spans["open"]
    kept = np.zeros(len(spans), np.bool_)
    own, other = np.flatnonzero(mine), np.flatnonzero(~mine)
    kept[_latest(spans, own, max(most // 2, most - len(other)))] = True
    kept[_latest(spans, other, most - int(kept.sum()))] = True
    return spans[kept], float(spans["end_s"][~kept].max())


def _latest(spans: Spans, among: Ints, most: int) -> Ints:
    """Of these rows the ones that ended last."""
    if len(among) <= most:
        return among
    return among[np.argpartition(spans["end_s"][among], len(among) - most)[len(among) - most :]]
