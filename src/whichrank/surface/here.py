"""One job as its rings on this node say it now, for screens: neither an agent nor an analyzer is needed.

The rings are read as an agent reads them, and who is waited for is found by the analyzer's own columns and rules, from
few snapshots. So a wait that no sensor marked, which takes two of them to be seen, counts from the rank's last sign of
life: no earlier snapshot has seen it begin. Nothing is written, removed or asked of the job.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Final

import numpy as np

from whichrank.agent.rank import RankWatch
from whichrank.agent.rings import Rings
from whichrank.agent.snapshot import record_rows, report
from whichrank.errors import RingFormatError
from whichrank.locate.waitgraph import build
from whichrank.model.codes import WaitHow
from whichrank.model.telemetry import TCP_ROW, VERSION, Batch, CommInfo
from whichrank.ring.folder import JobFolder
from whichrank.ring.reader import Rows, Scratch
from whichrank.store.store import Store

RECORDS_PER_POLL: Final = 8192
AWAITED_AFTER_S: Final = 2.0
"""A rank is called awaited when somebody has been blocked for so long."""
AGAIN_S: Final = 0.25
"""Between two reads: that a thread sleeps in a wait which no sensor marks, or how many operations a second are done,
takes both."""
NO_COMMUNICATOR: Final = -1
"""In the place of a communicator's id: others wait for an answer to a remote call."""


class JobHere:
    """The ranks of a job on this node.

    Args:
        folder: Its rings.
        scratch: Working memory, shared by all readers of a thread.

    Attributes:
        ranks: One watch for each rank, as of the latest `read`.
        inferred: By rank, rows of WAIT that no sensor marked.
        infos: Communicators by id.
        store: All that was read.
    """

    def __init__(self, folder: JobFolder, scratch: Scratch | None = None) -> None:
        self.ranks: Mapping[int, RankWatch] = {}
        self.inferred: Mapping[int, Rows] = {}
        self.infos: dict[int, CommInfo] = {}
        self.store = Store()
        self._folder = folder
        self._rings = Rings(folder, scratch)
        self._polls = 0

    def read(self, *, is_over: bool = False) -> None:
        """Read all rings once.

        Args:
            is_over: The folder is not that of this job any more, so no ring in it is.
        """
        if not is_over:
            self._rings.discover()
            self._forget_removed()
        self._rings.refresh(deep=False)
        watches = self._rings.chosen
        self.ranks = {watch.rank: watch for watch in watches}
        self.inferred = {watch.rank: _since_last_sign(watch, self._rings.inferred_waits(watch)) for watch in watches}
        now_ns = time.monotonic_ns()
        self.store.feed(self._batch(now_ns), now_ns / 1e9)

    def awaited(self, after_s: float) -> dict[int, set[int]]:
        """Who is waited for and waits for nobody: for each such rank, the ids of the communicators in question.

        Args:
            after_s: Seconds that a wait must have lasted.
        """
        picture = self.store.picture(time.monotonic())
        graph = build(picture, after_s)
        ends, edges = np.concatenate((graph.sinks, graph.unseen)), graph.edges
        leads = np.isin(edges.target, ends) & ~edges.entered & ~edges.either
        found: dict[int, set[int]] = {}
        comms = picture.waits["comm"][edges.wait[leads]]
        for rank, comm in zip(edges.target[leads].tolist(), comms.tolist(), strict=True):
            found.setdefault(rank, set()).add(self.store.comms.info[comm].comm_id)
        waiting = {int(rank) for rows in (picture.waits, picture.remote, picture.meetings) for rank in rows["rank"]}
        for call in picture.remote:
            called = int(call["peer"])
            if called != int(call["rank"]) and called not in waiting and picture.now_s - call["since_s"] >= after_s:
                found.setdefault(called, set()).add(NO_COMMUNICATOR)
        return {rank: of for rank, of in found.items() if rank in self.ranks and not self.ranks[rank].ended_ns}

    def kinds(self) -> dict[int, Mapping[int, int]]:
        """By communicator id, how many operations of each kind were completed."""
        return {info.comm_id: self.store.kinds.of(at) for at, info in enumerate(self.store.comms.info)}

    def unreadable(self) -> dict[str, str]:
        """By file name, why a ring cannot be read; one that is being made is left out."""
        return {path.name: why for path, why in sorted(self._rings.unreadable().items())}

    def close(self) -> None:
        """Let go of all rings."""
        self._rings.close()

    def _forget_removed(self) -> None:
        """A rank that was replaced: its agent has removed the ring. Rings that went with their folder stay."""
        if self._folder.path.is_dir():
            gone = [path for path, watch in self._rings.watches.items() if watch.ended_ns and not path.exists()]
            for path in gone:
                self._rings.let_go(path)

    def _batch(self, now_ns: int) -> Batch:
        watches = list(self.ranks.values())
        self._polls += 1
        comms = self._new_comms(watches)
        # What was completed before the first record that is there is lost, as far as we are concerned.
        lost = [watch.reader.lost + 1 for watch in watches]
        records = [record_rows(watch, watch.records(RECORDS_PER_POLL)) for watch in watches]
        inferred = [self.inferred[watch.rank] for watch in watches]
        columns = report(
            watches, inferred, lost, np.zeros(0, TCP_ROW), [watch.splits(closely=False) for watch in watches]
        )
        return Batch(
            version=VERSION,
            job=self._folder.job,
            agent="",
            host="",
            sequence=self._polls,
            sent_ns=now_ns,
            sent_realtime_ns=time.time_ns(),
            delay_bound_ns=0,
            node_ranks=len(watches),
            records=b"".join(rows.tobytes() for rows in records),
            comm_info=comms,
            **columns._asdict(),
        )

    def _new_comms(self, watches: list[RankWatch]) -> list[CommInfo]:
        """Communicators that are seen first, or whose members are known first."""
        new = []
        for watch in watches:
            for row in watch.snapshot.comms:
                known = self.infos.get(int(row["comm_id"]))
                if known is None or not known.members:
                    with contextlib.suppress(RingFormatError, OSError):
                        info = self.infos[int(row["comm_id"])] = watch.comm_info(row)
                        new.append(info)
        return new


def last_sign_ns(watch: RankWatch) -> int:
    """When the rank last began or ended an operation; 0 if it never did."""
    latest = 0
    for rows in (watch.snapshot.comms, watch.snapshot.pairs):
        if rows.size:
            latest = max(latest, int(rows["last_issue_ns"].max()), int(rows["last_done_ns"].max()))
    return latest


def _since_last_sign(watch: RankWatch, inferred: Rows) -> Rows:
    rows = inferred.copy()
    of_future = rows["how"] == WaitHow.FUTURE
    begun_ns = np.maximum(rows["t_issue_ns"], last_sign_ns(watch))
    rows["since_ns"] = np.where(of_future, np.minimum(rows["since_ns"], begun_ns), rows["since_ns"])
    return rows
