"""Reads one job: its rings, the processes behind them, and the incidents that its run has written.

Nothing is written, removed or asked of the job. Whatever cannot be read becomes a sentence in `faults`, and the rest is
shown: a ring that is cut short, foreign or newer, a folder that vanishes, a record that is damaged.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from whichrank.agent.inferred import WaitInference
from whichrank.agent.node import preferred
from whichrank.agent.processes import read_thread
from whichrank.agent.rank import RankWatch
from whichrank.agent.usage import Host
from whichrank.errors import RingFormatError, WhichrankError
from whichrank.model.codes import SensorState
from whichrank.model.incident import Incident
from whichrank.model.sensors import SENSORS
from whichrank.model.telemetry import CommInfo
from whichrank.ring.folder import JobFolder
from whichrank.ring.reader import Scratch
from whichrank.server.incidents_file import FILE_NAME, job_of, read_incidents
from whichrank.server.times_file import read_times
from whichrank.surface.watch.communicators import communicators_now
from whichrank.surface.watch.frame import JobNow, Mark
from whichrank.surface.watch.iterations import Iterations
from whichrank.surface.watch.ranks import RankRing, interesting_first, named_ranks, note_awaited, rank_now, seen
from whichrank.surface.watch.words import printable

BEING_MADE_S: Final = 3.0
"""A younger file may be a ring that is not finished."""
RATE_OVER_S: Final = 0.2


class JobReader:
    """One job of this node.

    Args:
        folder: Its rings.
        scratch: Working memory, shared by all readers of a thread.

    Attributes:
        is_over: Its folder is gone: the run has ended.
    """

    def __init__(self, folder: JobFolder, scratch: Scratch) -> None:
        self.folder = folder
        self.is_over = False
        owner = folder.owner()
        self._output = owner.output if owner and isinstance(owner.output, str) else ""
        self._scratch = scratch
        self._host = Host()
        self._watches: dict[Path, RankWatch] = {}
        self._inference: dict[Path, WaitInference] = {}
        self._unreadable: dict[Path, str] = {}
        self._infos: dict[int, CommInfo] = {}
        self._iterations = Iterations()
        self._ops: tuple[float, int] | None = None
        self._rate: float | None = None
        self._incidents: tuple[tuple[int, int, str], tuple[Incident, ...], tuple[str, ...]] = ((-1, -1, ""), (), ())

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Its incidents as of the latest `read_incidents`."""
        return self._incidents[1]

    def read(self, marks: Mapping[tuple[int, int | None], Mark]) -> JobNow:
        """Look at it now.

        Args:
            marks: Ranks with a known pid that incidents of other jobs here name: with `whichrank agent` the incidents
                are written by the run that analyzes.
        """
        self._discover()
        for watch in self._watches.values():
            watch.refresh(deep=False)
        chosen = self._choose()
        for watch in chosen:
            self._learn_comms(watch)
            self._iterations.feed(watch)
        ranks = {watch.rank: self._seen(watch) for watch in chosen}
        note_awaited(ranks)
        recorded, faults = self.read_incidents()
        incidents = self.incidents
        marks = {**marks, **named_ranks(incidents)}
        times, links = read_times(Path(self._output)) if self._output else ({}, ())
        iteration_of = self._iterations.iteration_of
        rows = [rank_now(one, marks, iteration_of(rank), times.get(rank)) for rank, one in ranks.items()]
        world_size = max((int(watch.snapshot.header["world_size"][0]) for watch in chosen), default=0)
        return JobNow(
            job=printable(self.folder.job),
            state="ended" if self.is_over else "running",
            started=_started(chosen),
            output=printable(self._output),
            world_size=max(world_size, len(rows)),
            ops_per_s=self._ops_per_s(sum(row.ops for row in rows)),
            ranks=interesting_first(rows, ranks),
            communicators=communicators_now(ranks, self._infos, self._iterations.kinds, world_size),
            links=links,
            recorded=recorded,
            incidents=urgent_first(incidents),
            sensors=_sensors(chosen),
            faults=(*(f"ring {path.name}: {why}" for path, why in sorted(self._unreadable.items())), *faults),
        )

    def close(self) -> None:
        """Let go of all rings."""
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()

    def _discover(self) -> None:
        if self.is_over:
            return
        rings = self.folder.rings()
        self._unreadable = {path: why for path, why in self._unreadable.items() if path in rings}
        for path in rings:
            known = self._watches.get(path)
            if known is None or (known.ended_ns and known.reader.is_replaced()):
                self._open(path)
        for path, watch in list(self._watches.items()):
            if watch.ended_ns and path not in rings and self.folder.path.is_dir():
                watch.close()  # a rank that was replaced by another
                del self._watches[path]

    def _open(self, path: Path) -> None:
        try:
            watch = RankWatch(path, self._scratch, self._host)
        except (RingFormatError, OSError) as error:
            if age_s(path) > BEING_MADE_S:
                what = error.what if isinstance(error, RingFormatError) else error.strerror or str(error)
                self._unreadable[path] = printable(what)
            return
        if path in self._watches:
            self._watches[path].close()
        self._unreadable.pop(path, None)
        self._watches[path], self._inference[path] = watch, WaitInference()

    def _choose(self) -> list[RankWatch]:
        best: dict[int, RankWatch] = {}
        for watch in self._watches.values():
            if watch.rank >= 0:
                best[watch.rank] = preferred(best[watch.rank], watch) if watch.rank in best else watch
        return [best[rank] for rank in sorted(best)]

    def _learn_comms(self, watch: RankWatch) -> None:
        for row in watch.snapshot.comms:
            comm_id = int(row["comm_id"])
            known = self._infos.get(comm_id)
            if known is None or not known.members:
                with contextlib.suppress(RingFormatError, OSError):
                    info = watch.comm_info(row)
                    self._infos[comm_id] = info
                    self._iterations.add_comm(info)

    def _seen(self, watch: RankWatch) -> RankRing:
        inferred = watch.snapshot.waits[:0]
        if not watch.ended_ns:
            inferred = self._inference[watch.path].waits(watch.snapshot, partial(read_thread, watch.pid))
        return seen(watch, inferred, self._infos)

    def _ops_per_s(self, ops: int) -> float | None:
        now_s = time.monotonic()
        if self._ops is None:
            self._ops = (now_s, ops)
        elif now_s - self._ops[0] >= RATE_OVER_S:
            self._rate = max(0, ops - self._ops[1]) / (now_s - self._ops[0])
            self._ops = (now_s, ops)
        return self._rate

    def read_incidents(self) -> tuple[bool, tuple[str, ...]]:
        """Read the file if it has changed. Whether there is one, and what in it could not be read."""
        path = Path(self._output) / FILE_NAME
        if not self._output:
            return False, ()
        try:
            status = path.stat()
        except (OSError, ValueError):  # ValueError: no file is called like that
            return False, ()
        stamp = (status.st_mtime_ns, status.st_size, job_of(path.parent))
        if stamp != self._incidents[0]:
            try:
                reading = read_incidents(path)
                faults = tuple(printable(f"{fault.what} ({fault.where})") for fault in reading.faults)
                self._incidents = (stamp, reading.incidents, faults)
            except WhichrankError as error:
                self._incidents = (stamp, self._incidents[1], (printable(error.what),))
        return True, self._incidents[2]


def urgent_first(incidents: tuple[Incident, ...]) -> tuple[Incident, ...]:
    """Open alerts, open notices, what is over; of each those that name a culprit, the newest first."""

    def key(incident: Incident) -> tuple[bool, bool, bool, float]:
        named = bool(incident.culprits)
        return (
            incident.status == "recovered",
            incident.severity != "alert",
            not named,
            -incident.detected.timestamp(),
        )

    return tuple(sorted(incidents, key=key))


def _started(watches: list[RankWatch]) -> datetime | None:
    created_ns = [int(watch.snapshot.header["created_realtime_ns"][0]) for watch in watches]
    try:
        return datetime.fromtimestamp(min(created_ns) / 1e9, UTC) if created_ns else None
    except (OverflowError, ValueError, OSError):
        return None


def _sensors(watches: list[RankWatch]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    word: Callable[[int], str] = lambda s: SensorState(s).name.lower() if s in set(SensorState) else f"state {s}"  # noqa: E731
    for watch in watches:
        for sensor, state in zip(SENSORS, watch.snapshot.header["sensor"]["state"][0].tolist(), strict=True):
            if state != SensorState.ABSENT:
                states = found.setdefault(sensor.name, {})
                states[word(state)] = states.get(word(state), 0) + 1
    return found


def age_s(path: Path) -> float:
    """Seconds since a file was last changed; 0 if it is gone."""
    try:
        return time.time() - path.lstat().st_ctime
    except OSError:
        return 0.0
