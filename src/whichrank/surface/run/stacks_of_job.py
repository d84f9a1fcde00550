"""The stacks of a job's ranks on this node, read straight from the rings' processes: no agent or analyzer is needed.

Suspects are the ranks that open incidents name. Where several runs on this node belong together, only the one that
analyzes has incidents, and the ranks may be of another one: those are known by their pids. Where nobody is named yet,
suspects are the living ranks that others have waited for, for some seconds, and that wait for nobody.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from whichrank.agent.node import Node
from whichrank.agent.outbox import Outbox
from whichrank.agent.rank import RankWatch
from whichrank.agent.rings import Rings
from whichrank.agent.stacks import StacksRefusedError, read_stacks
from whichrank.errors import UsageError, WhichrankError
from whichrank.model.incident import Incident
from whichrank.model.telemetry import Stack
from whichrank.ring.folder import JobFolder, base_folder, job_folders
from whichrank.server.incidents_file import FILE_NAME, read_incidents
from whichrank.surface.here import AGAIN_S, AWAITED_AFTER_S, JobHere
from whichrank.surface.watch.words import printable
from whichrank.verdict.words.amounts import ranges


class RankStacks(msgspec.Struct, kw_only=True):
    """Stacks of one rank, or why there are none."""

    rank: int
    pid: int
    state: str
    stacks: list[Stack] = []
    refused: str = ""
    job: str = ""


class Suspects(NamedTuple):
    """Stacks of suspects, and where others are."""

    stacks: list[RankStacks]
    elsewhere: list[str]
    """A sentence on each open alert of which nobody was found."""


def running_jobs(name: str | None) -> list[JobFolder]:
    """The job of this name on this node, or (None) all that run, the newest first.

    Raises:
        UsageError: There is none.
    """
    folders = job_folders()
    if name is not None:
        folders = [folder for folder in folders if folder.job == name]
    running = [folder for folder in folders if not folder.is_dead()]
    if not running:
        known = ", ".join(folder.job for folder in job_folders())
        raise UsageError(
            f"no job '{name}' runs on this node" if name else "no job runs on this node",
            where=str(base_folder()),
            mend=f"running or left behind: {known}" if known else "whichrank run -- COMMAND starts one",
        )
    return running


def stacks_of(folder: JobFolder, *, rank: int | None = None) -> list[RankStacks]:
    """Stacks of all living ranks, or of one.

    Raises:
        UsageError: The rank is not on this node.
    """
    with ExitStack() as opened:
        watches = _watches(folder, opened)
        if rank is not None:
            here = ", ".join(str(watch.rank) for watch in watches) or "none"
            watches = [watch for watch in watches if watch.rank == rank]
            if not watches:
                raise UsageError(
                    f"rank {rank} of job {folder.job} is not on this node",
                    where=f"ranks here: {here}",
                    mend=f"whichrank stacks {folder.job}  shows all that are; or run it on the rank's own node",
                )
        return [_read(watch, folder) for watch in watches]


def stacks_of_suspects(name: str | None) -> Suspects:
    """Stacks of the suspects of this job, or (None) of all jobs on this node.

    Raises:
        UsageError: There is no such job.
    """
    wanted = {folder.job for folder in running_jobs(name)}
    running = running_jobs(None)
    incidents = {folder.job: _open_incidents(folder) for folder in running}
    with ExitStack() as opened:
        watches = {folder.job: _watches(folder, opened) for folder in running}
        named = {job: _named(job, of_job, incidents) for job, of_job in watches.items()}
        suspects = named
        if not any(_ranks(incidents[job]) or named[job] for job in wanted):
            here = {folder.job: _read_here(folder, opened) for folder in running}
            time.sleep(AGAIN_S)
            for one in here.values():
                one.read()
            suspects = {job: [one.ranks[r] for r in sorted(one.awaited(AWAITED_AFTER_S))] for job, one in here.items()}
        stacks = [_read(w, folder) for folder in running if folder.job in wanted for w in suspects[folder.job]]
    return Suspects(stacks, [] if stacks else _elsewhere(incidents, named))


def _watches(folder: JobFolder, opened: ExitStack) -> list[RankWatch]:
    """All ranks on this node, those that have no ring too."""
    node = Node(folder, Outbox())
    opened.callback(node.close)
    node.refresh(deep=False)
    return node.watches()


def _read_here(folder: JobFolder, opened: ExitStack) -> JobHere:
    here = JobHere(folder)
    opened.callback(here.close)
    here.read()
    return here


def unread_rings(folder: JobFolder) -> list[str]:
    """A sentence on each ring that cannot be read, unless it is being made: its rank is missing above."""
    rings = Rings(folder)
    rings.discover()
    unreadable = rings.unreadable()
    rings.close()
    return [printable(f"ring {path.name} cannot be read: {why}") for path, why in sorted(unreadable.items())]


def _open_incidents(folder: JobFolder) -> tuple[Incident, ...]:
    """Those that its run has written; none where they cannot be read."""
    owner = folder.owner()
    if owner and owner.output and isinstance(owner.output, str):
        with contextlib.suppress(WhichrankError):
            incidents = read_incidents(Path(owner.output) / FILE_NAME).incidents
            return tuple(incident for incident in incidents if incident.status != "recovered")
    return ()


def _named(job: str, watches: Iterable[RankWatch], incidents: dict[str, tuple[Incident, ...]]) -> list[RankWatch]:
    """Ranks of a job that its own incidents name, or, by their pids, those of another job on this node."""
    own, host = _ranks(incidents[job]), socket.gethostname()
    pids = {
        (who.rank, who.pid)
        for of_job in incidents.values()
        for incident in of_job
        for who in (*incident.culprits, *incident.candidates)
        if who.host == host
    }
    return [watch for watch in watches if watch.rank in own or (watch.rank, watch.pid) in pids]


def _ranks(incidents: Iterable[Incident]) -> set[int]:
    return {who.rank for incident in incidents for who in (*incident.culprits, *incident.candidates)}


def _elsewhere(incidents: dict[str, tuple[Incident, ...]], named: dict[str, list[RankWatch]]) -> list[str]:
    """Whom open alerts name, and in which job they are, if on this node at all."""
    reported = []
    for job, of_job in incidents.items():
        alerts = [incident for incident in of_job if incident.severity == "alert"]
        if not alerts:
            continue
        ranks = _ranks(alerts)
        there = [other for other, watches in named.items() if any(watch.rank in ranks for watch in watches)]
        whom = f"rank{'s' * (len(ranks) > 1)} {ranges(sorted(ranks))}" if ranks else "no rank"
        command = f"whichrank stacks --suspects {there[0]}" if there else "`whichrank why` tells more"
        reported.append(f"an open alert of job {job} names {whom}: {command}")
    return reported


def _read(watch: RankWatch, folder: JobFolder) -> RankStacks:
    found = RankStacks(rank=watch.rank, pid=watch.pid, state=watch.process.state.name.lower(), job=folder.job)
    try:
        found.stacks = read_stacks(watch.pid, trains=watch.subject().tid)
    except StacksRefusedError as error:
        found.refused = f"{error.what}; {error.mend}" if error.mend else error.what
    return found
