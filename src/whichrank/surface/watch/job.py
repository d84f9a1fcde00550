"""Reads one job: its rings, the processes behind them, and the incidents that its run has written.

Nothing is written, removed or asked of the job. Whatever cannot be read becomes a sentence in `faults`, and the rest is
shown: a ring that is cut short, foreign or newer, a folder that vanishes, a record that is damaged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from whichrank.agent.rank import RankWatch
from whichrank.errors import WhichrankError
from whichrank.model.codes import SensorState
from whichrank.model.incident import Incident
from whichrank.model.sensors import SENSORS
from whichrank.ring.folder import JobFolder
from whichrank.ring.reader import Scratch
from whichrank.server.incidents_file import FILE_NAME, job_of, read_incidents
from whichrank.server.mitigations_file import read_now
from whichrank.server.times_file import Times, read_times
from whichrank.surface.here import AWAITED_AFTER_S, JobHere
from whichrank.surface.watch.communicators import communicators_now
from whichrank.surface.watch.frame import JobNow, Mark
from whichrank.surface.watch.ranks import interesting_first, named_ranks, note_awaited, rank_now, seen
from whichrank.surface.watch.words import printable

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
        self._here = JobHere(folder, scratch)
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
        here = self._here
        here.read(is_over=self.is_over)
        chosen = list(here.ranks.values())
        ranks = {rank: seen(watch, here.inferred[rank], here.infos) for rank, watch in here.ranks.items()}
        note_awaited(ranks, here.awaited(AWAITED_AFTER_S), AWAITED_AFTER_S)
        recorded, faults = self.read_incidents()
        incidents = self.incidents
        marks = {**marks, **named_ranks(incidents)}
        times = read_times(Path(self._output)) if self._output else Times()
        spent = times.by_rank()
        iteration_of = here.store.iteration_of
        rows = [rank_now(one, marks, iteration_of(rank), spent.get(rank)) for rank, one in ranks.items()]
        world_size = max((int(watch.snapshot.header["world_size"][0]) for watch in chosen), default=0)
        return JobNow(
            job=printable(self.folder.job),
            state="ended" if self.is_over else "running",
            started=_started(chosen),
            output=printable(self._output),
            world_size=max(world_size, len(rows)),
            ops_per_s=self._ops_per_s(sum(row.ops for row in rows)),
            ranks=interesting_first(rows, ranks),
            communicators=communicators_now(ranks, here.infos, here.kinds(), world_size),
            links=times.links,
            changes=times.changes,
            mitigation=read_now(Path(self._output)) if self._output and not self.is_over else None,
            recorded=recorded,
            incidents=urgent_first(incidents),
            sensors=_sensors(chosen),
            faults=(*(f"ring {name}: {printable(why)}" for name, why in here.unreadable().items()), *faults),
        )

    def close(self) -> None:
        """Let go of all rings."""
        self._here.close()

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
