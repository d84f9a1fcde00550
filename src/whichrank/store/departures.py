"""How ranks ended or failed: exits, signals, exceptions, and what the job has got over."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.ends import Ends
from whichrank.model.picture import Bools, Floats
from whichrank.model.telemetry import Event
from whichrank.model.texts import Texts
from whichrank.store.failures import Failures
from whichrank.store.interruption import GRACE_S, Interruption
from whichrank.store.rank_columns import RankColumns


class Departures:
    """By rank. Grows by some entries for each rank.

    Args:
        ranks: Columns of the same job.
        failures: Operations of it that failed.

    Attributes:
        interruption: Somebody ends the whole job.
        passed_on: Launchers end their ranks; they do so after a death, too.
        exits: How a process ended, as its agent saw it.
    """

    def __init__(self, ranks: RankColumns, failures: Failures) -> None:
        self._ranks = ranks
        self._failed = failures
        self.interruption = Interruption()
        self.passed_on = Interruption()
        self.exits: dict[int, Event] = {}
        self._asked: dict[int, tuple[int, int]] = {}  # the pid of a rank, and when it was sent a signal to end
        self._ancestors: dict[int, tuple[int, list[int]]] = {}  # the pid of a rank and of those that started it
        self._got_over: dict[int, tuple[np.void, int]] = {}  # the rank's row then, and until when by its host's clock

    @property
    def are_expected(self) -> bool:
        """Whether somebody has asked the job to end."""
        return self.interruption.is_on or self.passed_on.is_on

    def take(self, event: Event) -> None:
        """Take an exit, a signal that a process was sent, or who started it."""
        if event.kind == "exit":
            self.exits[event.rank] = event
        elif event.kind == "asked":
            if self._asked.get(event.rank, (-1, 0))[0] != event.pid:
                self._asked[event.rank] = event.pid, event.at_ns
        elif event.kind == "launched":
            self._ancestors[event.rank] = event.pid, [int(pid) for pid in event.text.split() if pid.isdigit()]

    def forget(self, rank: int) -> None:
        """What is known of the process that was this rank."""
        self._got_over.pop(rank, None)
        self.exits.pop(rank, None)

    def get_over(self, ranks: list[int], until_s: float) -> None:
        """The job goes on without these, or although they failed until then: that is no news any more."""
        for rank in ranks:
            until_ns = int((until_s - float(self._ranks.offset_s[rank])) * 1e9)
            self._got_over[rank] = self._ranks.rows[rank].copy(), until_ns
        self._failed.get_over(until_s)

    def open_ends(self) -> Ends:
        """How ranks ended or failed, but for what the job has got over."""
        ends, rows = self.ends(), self._ranks.rows
        if not self._got_over:
            return ends
        ended, failed, raised = (np.zeros(self._ranks.size, np.bool_) for _ in range(3))
        again_s = np.zeros(self._ranks.size)
        for rank, (then, until_ns) in self._got_over.items():
            ended[rank] = then["ended_ns"] and then["ended_ns"] == rows["ended_ns"][rank]
            raised[rank] = then["exception_ns"] and then["exception_ns"] == rows["exception_ns"][rank]
            failed[rank] = then["first_failure_ns"] > 0
            # The ring holds only the first failure of all: the first since then is reported by its record.
            again_ns = min((ns for ns in self._failed.ends_ns.get(rank, ()) if ns > until_ns), default=0)
            again_s[rank] = again_ns / 1e9 + self._ranks.offset_s[rank] if again_ns else 0.0
        return ends.but_for(ended, raised, failed, again_s)

    def ends(self) -> Ends:
        """How ranks ended, as far as they did, and not because somebody ends the job now."""
        return self.interruption.without_consequences(self.all_ends())

    def all_ends(self) -> Ends:
        """How ranks ended, as far as they did, for whatever cause."""
        r = self._ranks
        every = np.arange(r.size)
        status = np.where(r.present, r.rows["exit_status"], -1).astype(np.int64)
        for rank, event in self.exits.items():
            status[rank] = event.status if event.status >= 0 else status[rank]
        in_order = (status < 0) & (r.rows["closed_ns"] > 0) & (r.rows["exception_ns"] == 0)
        gone = self._ranks.have_ended() & r.present
        # Whoever ends well has caught what it had raised.
        raised = ~(gone & (status == 0)) & (r.rows["exception_ns"] > 0)
        return Ends(
            gone=gone,
            ended_s=self._ranks.host_s(every, r.rows["ended_ns"]),
            status=np.where(in_order, 0, status),
            failure_s=self._ranks.host_s(every, r.rows["first_failure_ns"]),
            failure=_texts(r.rows, "failure"),
            exception_s=np.where(raised, self._ranks.host_s(every, r.rows["exception_ns"]), 0.0),
            exception=_texts(r.rows, "exception", raised),
            closed_s=self._ranks.host_s(every, r.rows["closed_ns"]),
            node=r.agent,
            asked_s=self._asked_s(),
        )

    def launched_by(self) -> NDArray[np.int64]:
        """For each rank the rank whose process started its process, itself or through others; -1 where none did."""
        found = np.full(self._ranks.size, -1, np.int64)
        pids = self._ranks.rows["pid"]
        at = {(int(self._ranks.agent[r]), int(pids[r])): int(r) for r in np.flatnonzero(self._ranks.present)}
        for rank, (pid, ancestors) in self._ancestors.items():
            if pid == pids[rank]:
                agent = int(self._ranks.agent[rank])
                found[rank] = next((at[agent, one] for one in ancestors if (agent, one) in at), -1)
        return found

    def _asked_s(self) -> Floats:
        """When a process of the job asked each rank to end; 0 if none did, or if it has trained on since."""
        pids, asked_s = self._ranks.rows["pid"], np.zeros(self._ranks.size)
        for rank, (pid, at_ns) in self._asked.items():
            if pid == pids[rank]:
                asked_s[rank] = at_ns / 1e9 + float(self._ranks.offset_s[rank])
        return np.where(self._ranks.went_on_s > asked_s + GRACE_S, 0.0, asked_s)


def _texts(rows: np.ndarray[Any, Any], field: str, which: Bools | None = None) -> Texts:
    """What a field of RANK_ROW says, of these ranks only."""
    texts = rows[field]
    has_text = texts.astype("S1") != b""  # to go through whole texts takes long
    said = np.flatnonzero(has_text if which is None else has_text & which).tolist()
    return Texts(len(rows), {rank: texts[rank].decode(errors="replace") for rank in said})
