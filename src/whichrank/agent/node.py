"""The ranks of a job on this node: what they do now, and what is reported once of each.

`agent.rings` finds and reads them; here it is noted what has begun and ended since, and put into the outbox.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from whichrank.agent.memory import OUT_OF_MEMORY, OomWatch
from whichrank.agent.outbox import Outbox
from whichrank.agent.rank import RankWatch
from whichrank.agent.ringless import SUFFIX, NoRing, Ringless
from whichrank.agent.rings import Rings
from whichrank.agent.snapshot import StateColumns, oldest_flight_ns, oldest_wait_ns, record_rows, report
from whichrank.agent.tcp import Connections
from whichrank.errors import RingFormatError
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import Event
from whichrank.ring.end_signals import EndSignal, EndSignals
from whichrank.ring.folder import JobFolder
from whichrank.ring.reader import Rows

RECORDS_PER_POLL: Final = 8192
KEEP_SUPERSEDED_NS: Final = 30_000_000_000


class Node:
    """The ranks of a job on this node.

    Args:
        folder: Where the rings are.
        outbox: Takes records, communicators and events.
        oom: Knows whether the kernel kills for lack of memory.
    """

    def __init__(self, folder: JobFolder, outbox: Outbox, oom: OomWatch | None = None) -> None:
        self._folder = folder
        self._outbox = outbox
        self._oom = oom or OomWatch()
        self._rings = Rings(folder)
        self._watches = self._rings.watches
        self._inferred: dict[Path, Rows] = {}
        self._reported_end: set[Path] = set()
        self._reported_cut: set[Path] = set()
        self._reported_launched: set[tuple[int, int]] = set()
        self._reported_unreadable: set[Path] = set()
        self._end_signals = EndSignals(folder.path)
        self._connections = Connections()
        self._ringless = Ringless(folder.path)

    @property
    def rings(self) -> int:
        """Rings that could be read, of living and dead processes."""
        return sum(watch.has_ring for watch in self._watches.values())

    def watches(self) -> list[RankWatch]:
        """One watch per rank, by rank, as of the latest snapshot."""
        return self._rings.chosen

    def alive(self) -> bool:
        """Whether any process that has a ring runs."""
        return any(not watch.ended_ns for watch in self._watches.values())

    def pidfds(self) -> set[int]:
        """Descriptors that become readable when a process ends."""
        return {watch.pidfd for watch in self._watches.values() if watch.pidfd >= 0}

    def refresh(self, *, deep: bool) -> None:
        """Find new rings, look at all of them, and put what is reported once into the outbox."""
        signals = (
            self._end_signals.news()
        )  # before processes are looked at: none ends because of one that is not reported
        self._discover()
        self._discover_ringless()
        self._oom.poll(time.monotonic_ns())
        self._rings.refresh(deep=deep)
        self._report_end_signals(signals)
        for path, watch in self._watches.items():
            self._report_end(path, watch)
        for watch in self.watches():
            self._report_launched(watch)
            self._inferred[watch.path] = self._rings.inferred_waits(watch)
            if watch.comms_changed:
                self._connections.expect_new()
                watch.comms_changed = not self._report_comms(watch)
            records = watch.records(RECORDS_PER_POLL)
            if records.size:
                self._outbox.add_records(record_rows(watch, records))
        self._remove_superseded()

    def take_records(self, least: int) -> bool:
        """Put what is reported once into the outbox where a ring has so many new records; nothing else is looked at.

        False: no ring has so many, or more is new than records, so the node is to be looked at.
        """
        if max((watch.backlog() for watch in self.watches()), default=0) < least:
            return False
        are_all = True
        for watch in self.watches():
            records = watch.records(RECORDS_PER_POLL)
            if not records.size:
                continue
            rows = record_rows(watch, records)
            if not rows["comm"][rows["row"]["kind"] < Kind.STEP].all():  # some communicator is newer than the snapshot
                are_all = False
                watch.refresh(deep=False)
                rows = record_rows(watch, records)
            self._outbox.add_records(rows)
        return are_all

    def note_exits(self) -> None:
        """Look only at processes whose end was just announced, before anybody reaps them."""
        for path, watch in self._watches.items():
            if not watch.ended_ns:
                watch.note_end_if_over()
                self._report_end(path, watch)

    def reported(self, *, closely: bool, connections_closely: bool, every_s: float) -> tuple[StateColumns, int]:
        """State columns of the latest snapshots, and how long the longest wait lasts, in ns.

        Args:
            closely: Something is suspected.
            connections_closely: A link is in doubt, or that.
            every_s: Seconds between two snapshots while all is well; 0: not known.
        """
        watches = self.watches()
        inferred = [self._inferred.get(watch.path, _none(watch)) for watch in watches]
        lost = [watch.reader.lost + self._outbox.dropped_records[watch.rank] for watch in watches]
        connections = self._connections.rows(watches, closely=connections_closely, every_s=every_s)
        splits = [watch.splits(closely=closely) for watch in watches]
        return report(watches, inferred, lost, connections, splits), oldest_wait_ns(watches, inferred)

    def is_well(self, longest_ns: int) -> bool:
        """Whether all ranks of this node are there and well, and no operation has been in flight for so long."""
        watches = self.watches()
        expected = max((int(watch.snapshot.header["local_world_size"][0]) for watch in watches), default=0)
        return (
            0 < len(watches) == len(self._watches) >= expected
            and all(watch.is_well() for watch in watches)
            and oldest_flight_ns(watches) < longest_ns
        )

    def note_reported(self) -> None:
        """The analyzer was sent what `reported` returned last."""
        for watch in self.watches():
            watch.note_reported()

    def report_again(self) -> None:
        """The analyzer is a new one."""
        for watch in self._watches.values():
            watch.report_again()

    def close(self) -> None:
        """Let go of all rings and of the kernel."""
        self._connections.close()
        self._rings.close()

    def _discover(self) -> None:
        self._reported_end -= set(self._rings.discover())
        unreadable = self._rings.unreadable()
        for path in unreadable.keys() - self._reported_unreadable:
            pid = int(path.stem) if path.stem.isdigit() else 0
            self._note(-1, pid, f"ring {path.name} cannot be read: {unreadable[path]}")
        self._reported_unreadable = set(unreadable)

    def _discover_ringless(self) -> None:
        """Take up ranks that have no ring, and let go of those that have one by now."""
        ringed = [watch for watch in self._watches.values() if watch.has_ring]
        ranks, pids = {watch.rank for watch in ringed if not watch.ended_ns}, {watch.pid for watch in ringed}
        for path, watch in list(self._watches.items()):
            if not watch.has_ring and (watch.pid in pids or watch.rank in ranks):
                self._let_go(path)
        expected = max((int(watch.snapshot.header["local_world_size"][0]) for watch in ringed), default=0)
        for found in self._ringless.find(ranks, expected):
            path = self._folder.path / f"{found.pid}{SUFFIX}"
            if path not in self._watches:
                with contextlib.suppress(RingFormatError, OSError):
                    self._rings.add(path, NoRing(found))

    def _let_go(self, path: Path) -> None:
        self._rings.let_go(path)
        self._inferred.pop(path, None)

    def _remove_superseded(self) -> None:
        """A dead ring whose rank lives on in another one says nothing any more and takes shared memory."""
        chosen = {watch.path for watch in self.watches()}
        for path, watch in list(self._watches.items()):
            if path in chosen or not watch.ended_ns or time.monotonic_ns() - watch.ended_ns < KEEP_SUPERSEDED_NS:
                continue
            if watch.has_ring and not watch.reader.is_replaced():
                path.unlink(missing_ok=True)
            self._let_go(path)

    def _report_end(self, path: Path, watch: RankWatch) -> None:
        if watch.is_cut and path not in self._reported_cut:
            self._reported_cut.add(path)
            self._note(
                watch.rank, watch.pid, f"the ring of rank {watch.rank} was cut short; what was read before is kept"
            )
        if watch.ended_ns and path not in self._reported_end:
            self._reported_end.add(path)
            if watch.rank >= 0 and watch in self.watches():
                text = OUT_OF_MEMORY if self._was_killed_for_memory(watch) else ""
                event = Event("exit", watch.rank, watch.pid, watch.ended_ns, text, watch.exit_status)
                self._outbox.add_event(event)

    def _was_killed_for_memory(self, watch: RankWatch) -> bool:
        status = watch.exit_status
        killed = status >= 0 and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        return killed and self._oom.rose_lately() and not watch.no_memory_kills()

    def _report_comms(self, watch: RankWatch) -> bool:
        """Put communicators into the outbox; False if one could not be read now."""
        all_reported = True
        for comm in watch.snapshot.comms:
            if not self._outbox.knows(int(comm["comm_id"])):
                try:
                    self._outbox.add_comm(watch.comm_info(comm))
                except (RingFormatError, OSError):
                    all_reported = watch.is_cut
        return all_reported

    def _report_end_signals(self, signals: list[EndSignal]) -> None:
        for reported in signals:
            if not reported.target:
                self._outbox.add_event(Event("signal", -1, 0, reported.at_ns, reported.name))
            for watch in self.watches():
                if reported.sender != watch.pid and reported.target in (watch.pid, *watch.ancestors):
                    self._outbox.add_event(Event("asked", watch.rank, watch.pid, reported.at_ns, reported.name))

    def _report_launched(self, watch: RankWatch) -> None:
        """By which processes it was started: a rank that starts others also ends them."""
        key = watch.rank, watch.pid
        if watch.ancestors and key not in self._reported_launched:
            self._reported_launched.add(key)
            text = " ".join(map(str, watch.ancestors))
            self._outbox.add_event(Event("launched", watch.rank, watch.pid, watch.created_ns, text))

    def _note(self, rank: int, pid: int, text: str) -> None:
        self._outbox.add_event(Event("note", rank, pid, time.monotonic_ns(), text))

    def __iter__(self) -> Iterator[RankWatch]:
        return iter(self.watches())


def _none(watch: RankWatch) -> Rows:
    return watch.snapshot.waits[:0]
