"""Pictures of jobs out of plain data: who has entered what, who is blocked on what, who is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whichrank.model.codes import WaitHow
from whichrank.model.kinds import Kind
from whichrank.model.picture import OPS, PAIRS, SPLITS_OF, WAITS, Picture

NOW_S = 1000.0


def main_tid(rank: int) -> int:
    """The main thread of a rank in these pictures; it issues everything that is not said to come from another."""
    return 5000 + rank


class Job:
    """A job of so many ranks with these communicators; everything was read just now."""

    def __init__(self, ranks: int, **comms: Sequence[int]) -> None:
        self.ranks = ranks
        self.names = list(comms)
        self.members = [list(m) for m in comms.values()]
        self.present = np.ones(ranks, np.bool_)
        self.fresh = np.ones(ranks, np.bool_)
        self.stopped = np.zeros(ranks, np.bool_)
        self.gone = np.zeros(ranks, np.bool_)
        self.busy = np.zeros(ranks, np.bool_)
        self.read_s = np.full(ranks, NOW_S)
        self.read_after_s = np.full(ranks, NOW_S)
        sizes = [len(m) for m in self.members]
        self.at = np.cumsum([0, *sizes[:-1]]).astype(np.int64) if sizes else np.zeros(0, np.int64)
        self.issued = np.zeros(sum(sizes), np.int64)
        self.done = np.zeros(sum(sizes), np.int64)
        self.tid = np.array([main_tid(max(r, 0)) for m in self.members for r in m], np.int64)
        self.seen = np.ones(sum(sizes), np.bool_)
        self.issuing_tid = np.zeros(ranks, np.int64)
        self._waits: list[dict[str, Any]] = []
        self._pairs: list[tuple[int, int, int, int, int, int, int]] = []
        self._ops: list[dict[str, Any]] = []
        self._splits: list[dict[str, Any]] = []

    def place(self, comm: str, rank: int) -> int:
        c = self.names.index(comm)
        return int(self.at[c]) + self.members[c].index(rank)

    def entered(self, comm: str, counter: int, *ranks: int, done: int | None = None, tid: int | None = None) -> Job:
        """These ranks have issued operations up to `counter` there, and completed all but the last."""
        for rank in ranks:
            at = self.place(comm, rank)
            self.issued[at] = counter
            self.done[at] = counter - 1 if done is None else done
            if tid is not None:
                self.tid[at] = tid
        return self

    def waits(
        self, rank: int, comm: str, counter: int, for_s: float = 10.0, kind: Kind = Kind.ALL_REDUCE, **more: Any
    ) -> Job:
        """A thread of a rank is blocked on an operation (that it has entered, if it is a collective)."""
        if kind < Kind.SEND:
            self.entered(comm, counter, rank)
        row = {
            "rank": rank, "comm": self.names.index(comm), "counter": counter, "kind": kind, "peer": -1, "tag": 0,
            "tid": main_tid(rank), "since_s": NOW_S - for_s, "issue_s": NOW_S - for_s, "explicit": True,
            "how": WaitHow.CALL, "count": 1024, "dtype": 6,
        }  # fmt: skip
        self._waits.append(row | more)
        return self

    def pair(self, rank: int, comm: str, kind: Kind, peer: int, issued: int, tag: int = 0, completed: int = 0) -> Job:
        """Send/recv that a rank has issued toward a group rank."""
        self._pairs.append((rank, self.names.index(comm), kind, peer, tag, issued, completed))
        return self

    def op(self, rank: int, comm: str, counter: int, kind: Kind = Kind.ALL_REDUCE, **more: Any) -> Job:
        """An operation in flight (`failed=True`: one that has failed)."""
        row = {"rank": rank, "comm": self.names.index(comm), "counter": counter, "kind": kind, "peer": -1,
               "count": 1024,
               "dtype": 6, "issue_s": NOW_S - 10.0, "ordinal": counter}  # fmt: skip
        self._ops.append(row | more)
        return self

    def splits(self, rank: int, comm: str, counter: int, to: Sequence[int], of: Sequence[int], **more: Any) -> Job:
        """What an all-to-all of a rank, complete or not, sends to each member and expects of each."""
        size = SPLITS_OF["split_in"].shape[0]
        kept = [np.array([*list(sizes)[:size], *[0] * (size - len(sizes))]) for sizes in (to, of)]
        row = {"rank": rank, "comm": self.names.index(comm), "counter": counter, "splits": min(len(to), size),
               "count": sum(to), "out_count": sum(of), "split_in": kept[0], "split_out": kept[1]}  # fmt: skip
        self._splits.append(row | more)
        return self

    def picture(self) -> Picture:
        return Picture(
            now_s=NOW_S,
            present=self.present,
            fresh=self.fresh,
            read_s=self.read_s,
            read_after_s=self.read_after_s,
            main_tid=np.array([main_tid(r) for r in range(self.ranks)], np.int64),
            stopped=self.stopped,
            gone=self.gone,
            busy=self.busy,
            waits=_table(WAITS, self._waits),
            ops=_table(OPS, self._ops),
            pairs=np.array(self._pairs, PAIRS),
            splits=_table(SPLITS_OF, self._splits),
            comm_at=self.at,
            comm_size=np.array([len(m) for m in self.members], np.int64),
            member_rank=np.array([r for m in self.members for r in m], np.int64),
            member_issued=self.issued,
            member_done=self.done,
            member_tid=self.tid,
            member_seen=self.seen,
            issuing_tid=self.issuing_tid,
        )


def _table(dtype: np.dtype[Any], rows: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    table = np.zeros(len(rows), dtype)
    for at, row in enumerate(rows):
        for name, value in row.items():
            table[name][at] = value
    return table
