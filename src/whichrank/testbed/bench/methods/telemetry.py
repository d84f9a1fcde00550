"""What all methods look at: the state of the job as the agents say it, and its rounds as they complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.hang import BARRIER_BYTES
from whichrank.model.codes import Flag
from whichrank.model.kinds import BARRIERS, Kind, is_collective
from whichrank.model.picture import Ints, Picture
from whichrank.model.signature import op_bytes
from whichrank.model.telemetry import Batch
from whichrank.store.completed import Completed
from whichrank.store.store import Store

ROUNDS = np.dtype(
    [
        ("comm", "i8"),
        ("counter", "i8"),
        ("rank", "i8"),
        ("kind", "i8"),
        ("count", "i8"),  # elements
        ("bytes", "f8"),
        ("signature", "i8"),
        ("issue_s", "f8"),  # on its own host's clock
        ("took_s", "f8"),
        ("reported_s", "f8"),  # on the analyzer's clock
    ]
)
"""A collective that a rank has completed."""
_KEPT_S = 300.0


class Launched:
    """Collectives whose end was reported, counted by communicator, rank and kind."""

    def __init__(self) -> None:
        self._count: Counter[tuple[int, int, int]] = Counter()

    def add(self, comm: Ints, rank: Ints, kind: Ints) -> None:
        """Count these operations; sends and receives are left out."""
        rows = np.stack((comm, np.asarray(rank, np.int64), np.asarray(kind, np.int64)), axis=1)
        keys, counts = np.unique(rows[(comm >= 0) & is_collective(kind)], axis=0, return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            self._count[tuple(key)] += count

    def of(self, comm: int, rank: int, kinds: Collection[int]) -> int:
        """How many of these kinds a rank has ended on a communicator."""
        return sum(self._count[comm, rank, int(kind)] for kind in kinds)


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

    def oldest(self, least_s: float) -> tuple[int, int] | None:
        """Communicator and counter of the one that has lasted longest, if that is longer than so; barriers left out."""
        too_long = np.flatnonzero((self.for_s > least_s) & ~self.is_barrier)
        if not len(too_long):
            return None
        at = too_long[np.argmax(self.for_s[too_long])]
        return int(self.comm[at]), int(self.counter[at])


class Telemetry:
    """Telemetry of a job so far.

    Args:
        stacks: By rank, the frames of its main thread at the end of a hang, innermost first.

    Attributes:
        launched: Collectives that have ended, by kind.
    """

    def __init__(self, stacks: Mapping[int, list[str]] | None = None) -> None:
        self.stacks = dict(stacks or {})
        self.store = Store()
        self.now_s = 0.0
        self.launched = Launched()
        self.steps: list[tuple[int, float]] = []
        """Rank and time, on its host's clock, of each optimizer step."""
        self._rounds: list[np.ndarray[Any, Any]] = []
        self._picture: Picture | None = None

    def feed(self, batch: Batch, now_s: float) -> None:
        """Take what an agent reported."""
        fed = self.store.feed(batch, now_s)
        done, steps = fed.done, fed.steps
        self.now_s, self._picture = now_s, None
        self.launched.add(done.comm, done.rank, done["kind"])
        have_lasted = is_collective(done["kind"]) & (done["t_end_ns"] > done["t_issue_ns"])
        self._rounds.append(_rounds(done.those(have_lasted), now_s))
        self.steps += zip(steps["rank"].tolist(), (steps["row"]["t_end_ns"] / 1e9).tolist(), strict=True)
        while self._rounds and (not len(self._rounds[0]) or now_s - self._rounds[0]["reported_s"][0] > _KEPT_S):
            self._rounds.pop(0)

    def at(self, now_s: float) -> None:
        """Time goes on."""
        self.now_s, self._picture = now_s, None

    @property
    def picture(self) -> Picture:
        """The job now."""
        if self._picture is None:
            self._picture = self.store.picture(self.now_s)
        return self._picture

    @property
    def has_ended(self) -> bool:
        """All processes are gone: nobody can be asked any more, and silence is no hang."""
        picture = self.picture
        return bool(picture.present.any() and picture.gone[picture.present].all())

    def rounds(self, since_s: float) -> np.ndarray[Any, Any]:
        """Rows of ROUNDS that were reported since then."""
        recent = [rows for rows in self._rounds if len(rows) and rows["reported_s"][0] >= since_s]
        return np.concatenate(recent) if recent else np.zeros(0, ROUNDS)

    def waiting(self) -> Waiting:
        """Collectives in flight."""
        ops = self.picture.ops
        # What an ended process stood in is reported still; a library inside of it would say nothing.
        ops = ops[is_collective(ops["kind"]) & ~ops["failed"] & ~self.picture.gone[ops["rank"]]]
        size = np.array([op_bytes(int(o["dtype"]), int(o["count"])) or 0 for o in ops], np.float64)
        is_barrier = barriers(ops["kind"], size)
        return Waiting(ops["rank"], ops["comm"], ops["counter"], self.now_s - ops["issue_s"], is_barrier)

    def between_nodes(self) -> dict[tuple[int, int], tuple[float, float]]:
        """By sender and receiver on different nodes: bytes acknowledged so far, and microseconds of sending them."""
        ends, _, rows = self.store.paths.joined()
        node = self.store.paths.nodes(self.store.ranks.agent)
        reported: dict[tuple[int, int], tuple[float, float]] = {}
        for rank, peer, info in zip(ends.rank.tolist(), ends.peer.tolist(), rows["info"], strict=True):
            if 0 <= peer < len(node) and 0 <= rank < len(node) and node[rank] != node[peer]:
                sent, busy_us = reported.get((rank, peer), (0.0, 0.0))
                reported[rank, peer] = sent + float(info["bytes_acked"]), busy_us + float(info["busy_us"])
        return reported

    def members(self, comm: int) -> tuple[Ints, Ints, Ints]:
        """Ranks of a communicator, and how many collectives each has issued and completed on it."""
        at, size = int(self.picture.comm_at[comm]), int(self.picture.comm_size[comm])
        part = slice(at, at + size)
        picture = self.picture
        return picture.member_rank[part], picture.member_issued[part], picture.member_done[part]


def barriers(kind: Ints, size: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which collectives carry no data to speak of: an all-reduce of less than four bytes is one (CCL-D 4.2.1)."""
    is_barrier = np.isin(kind, list(BARRIERS))
    return np.asarray(is_barrier | ((kind == Kind.ALL_REDUCE) & (size < BARRIER_BYTES)))


def told_apart(kind: Ints, dtype: Ints, count: Ints, flags: Ints) -> Ints:
    """What a recorder compares of collectives, as a number; ranks may give different sizes to an uneven all-to-all."""
    kinds, dtypes, counts = (np.asarray(column, np.int64) for column in (kind, dtype, count))
    is_uneven = (np.asarray(flags, np.int64) & Flag.UNEVEN) > 0
    return (kinds << 56) | (dtypes << 48) | np.where(is_uneven, 0, counts)


def _rounds(row: Completed, now_s: float) -> np.ndarray[Any, Any]:
    made = np.zeros(len(row), ROUNDS)
    made["comm"], made["counter"], made["rank"] = row.comm, row["counter"], row.rank
    made["kind"], made["count"] = row["kind"], row["count"]
    made["bytes"] = [op_bytes(*one) or 0 for one in zip(row["dtype"].tolist(), row["count"].tolist(), strict=True)]
    made["signature"] = told_apart(row["kind"], row["dtype"], row["count"], row["flags"])
    made["issue_s"] = row["t_issue_ns"] / 1e9
    made["took_s"] = (row["t_end_ns"] - row["t_issue_ns"]) / 1e9
    made["reported_s"] = now_s
    return made


def by_round(rows: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Rows of ROUNDS, those of one round together."""
    order = np.lexsort((rows["counter"], rows["comm"]))
    rows = rows[order]
    cuts = np.flatnonzero((np.diff(rows["comm"]) != 0) | (np.diff(rows["counter"]) != 0)) + 1
    return np.split(rows, cuts) if len(rows) else []
