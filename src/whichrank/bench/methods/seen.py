"""What all methods look at: the state of the job as the agents tell it, and its rounds as they complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.analyzer.state import JobState
from whichrank.model.picture import Ints, Picture
from whichrank.model.rows import Kind
from whichrank.model.signature import op_bytes
from whichrank.model.telemetry import Batch

ROUNDS = np.dtype(
    [
        ("comm", "i8"),
        ("counter", "i8"),
        ("rank", "i8"),
        ("kind", "i8"),
        ("bytes", "f8"),
        ("signature", "i8"),
        ("issue_s", "f8"),  # on its own host's clock
        ("took_s", "f8"),
        ("told_s", "f8"),  # on the analyzer's clock
    ]
)
"""A collective that a rank has completed."""
BARRIER_BYTES = 4
"""An all-reduce of less is a barrier (CCL-D section 4.2.1)."""
_KEPT_S = 300.0


@dataclass(frozen=True)
class Waiting:
    """Collectives that ranks are in, one entry each.

    Attributes:
        rank: Global.
        comm: Index of the communicator.
        counter: Number of the operation on it.
        for_s: Seconds since it was issued.
        is_barrier: It carries no data to speak of.
    """

    rank: Ints
    comm: Ints
    counter: Ints
    for_s: NDArray[np.float64]
    is_barrier: NDArray[np.bool_]


class Seen:
    """Telemetry of a job so far.

    Args:
        stacks: By rank, the frames of its main thread at the end of a hang, innermost first.
    """

    def __init__(self, stacks: Mapping[int, list[str]] | None = None) -> None:
        self.stacks = dict(stacks or {})
        self.state = JobState()
        self.now_s = 0.0
        self.steps: list[tuple[int, float]] = []
        """Rank and time, on its host's clock, of each optimizer step."""
        self._rounds: list[np.ndarray[Any, Any]] = []
        self._picture: Picture | None = None

    def feed(self, batch: Batch, now_s: float) -> None:
        """Take what an agent told."""
        rows, comm = self.state.feed(batch, now_s)
        self.now_s, self._picture = now_s, None
        row = rows["row"]
        known = (comm >= 0) & (row["kind"] < Kind.SEND) & (row["t_end_ns"] > row["t_issue_ns"])
        self._rounds.append(_rounds(rows[known], comm[known], now_s))
        steps = self.state.take_steps()
        self.steps += zip(steps["rank"].tolist(), (steps["row"]["t_end_ns"] / 1e9).tolist(), strict=True)
        while self._rounds and (not len(self._rounds[0]) or now_s - self._rounds[0]["told_s"][0] > _KEPT_S):
            self._rounds.pop(0)

    def at(self, now_s: float) -> None:
        """Time goes on."""
        self.now_s, self._picture = now_s, None

    @property
    def picture(self) -> Picture:
        """The job now."""
        if self._picture is None:
            self._picture = self.state.picture(self.now_s)
        return self._picture

    def rounds(self, since_s: float) -> np.ndarray[Any, Any]:
        """Rows of ROUNDS that were told since then."""
        recent = [rows for rows in self._rounds if len(rows) and rows["told_s"][0] >= since_s]
        return np.concatenate(recent) if recent else np.zeros(0, ROUNDS)

    def waiting(self) -> Waiting:
        """Collectives in flight."""
        ops = self.picture.ops
        ops = ops[(ops["kind"] < Kind.SEND) & ~ops["failed"]]
        size = np.array([op_bytes(int(o["dtype"]), int(o["count"])) or 0 for o in ops], np.float64)
        is_barrier = np.isin(ops["kind"], (Kind.BARRIER, Kind.MONITORED_BARRIER))
        is_barrier |= (ops["kind"] == Kind.ALL_REDUCE) & (size < BARRIER_BYTES)
        return Waiting(ops["rank"], ops["comm"], ops["counter"], self.now_s - ops["issue_s"], is_barrier)

    def members(self, comm: int) -> tuple[Ints, Ints, Ints]:
        """Ranks of a communicator, and how many collectives each has issued and completed on it."""
        at, size = int(self.picture.comm_at[comm]), int(self.picture.comm_size[comm])
        part = slice(at, at + size)
        picture = self.picture
        return picture.member_rank[part], picture.member_issued[part], picture.member_done[part]


def _rounds(rows: np.ndarray[Any, Any], comm: Ints, now_s: float) -> np.ndarray[Any, Any]:
    row = rows["row"]
    made = np.zeros(len(rows), ROUNDS)
    made["comm"], made["counter"], made["rank"] = comm, row["counter"], rows["rank"]
    made["kind"] = row["kind"]
    made["bytes"] = [op_bytes(int(r["dtype"]), int(r["count"])) or 0 for r in row]
    made["signature"] = (row["kind"].astype(np.int64) << 56) | (row["dtype"].astype(np.int64) << 48)
    made["signature"] |= row["count"].astype(np.int64)
    made["issue_s"] = row["t_issue_ns"] / 1e9
    made["took_s"] = (row["t_end_ns"] - row["t_issue_ns"]) / 1e9
    made["told_s"] = now_s
    return made


def by_round(rows: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Rows of ROUNDS, those of one round together."""
    order = np.lexsort((rows["counter"], rows["comm"]))
    rows = rows[order]
    cuts = np.flatnonzero((np.diff(rows["comm"]) != 0) | (np.diff(rows["counter"]) != 0)) + 1
    return np.split(rows, cuts) if len(rows) else []
