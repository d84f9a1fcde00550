"""The stacks of a job's ranks on this node, read straight from the rings' processes: no agent or analyzer is needed.

Suspects are the ranks that open incidents name. Where none is open yet, they are the living ranks in which no thread
waits for an operation while others have waited for some seconds: those that are waited for.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from whichrank.agent.look import oldest_wait_ns
from whichrank.agent.node import Node
from whichrank.agent.outbox import Outbox
from whichrank.agent.rank import RankWatch
from whichrank.agent.stacks import StacksRefusedError, read_stacks
from whichrank.errors import RingFormatError, UsageError, WhichrankError
from whichrank.model.telemetry import Stack
from whichrank.ring.folder import JobFolder, base_folder, job_folders
from whichrank.ring.reader import RingReader
from whichrank.surface.incidents_file import FILE_NAME, read_incidents
from whichrank.surface.watch.job import BEING_MADE_S, age_s
from whichrank.surface.watch.words import printable

WAITED_LONG_NS = 2_000_000_000


class RankStacks(msgspec.Struct, kw_only=True):
    """Stacks of one rank, or why there are none."""

    rank: int
    pid: int
    state: str
    stacks: list[Stack] = []
    refused: str = ""


def find_job(name: str | None) -> JobFolder:
    """The job of this name on this node, or (None) the newest one that runs.

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
    return running[0]


def stacks_of(folder: JobFolder, *, rank: int | None = None, suspects: bool = False) -> list[RankStacks]:
    """Stacks of all living ranks, of one, or of the suspects.

    Raises:
        UsageError: The rank is not on this node.
    """
    node = Node(folder, Outbox())
    try:
        node.refresh(deep=False)
        watches = node.watches()
        if rank is not None:
            watches = [watch for watch in watches if watch.rank == rank]
            if not watches:
                here = ", ".join(str(watch.rank) for watch in node.watches()) or "none"
                raise UsageError(
                    f"rank {rank} of job {folder.job} is not on this node",
                    where=f"ranks here: {here}",
                    mend=f"whichrank stacks {folder.job}  shows all that are; or run it on the rank's own node",
                )
        elif suspects:
            named = suspected(folder, watches)
            watches = [watch for watch in watches if watch.rank in named]
        return [_read(watch) for watch in watches]
    finally:
        node.close()


def unread_rings(folder: JobFolder) -> list[str]:
    """A sentence on each ring that cannot be read, unless it is being made: its rank is missing above."""
    told = []
    for path in folder.rings():
        try:
            RingReader(path).close()
        except (RingFormatError, OSError) as error:
            if age_s(path) > BEING_MADE_S:
                what = error.what if isinstance(error, RingFormatError) else error.strerror or str(error)
                told.append(printable(f"ring {path.name} cannot be read: {what}"))
    return told


def suspected(folder: JobFolder, watches: list[RankWatch]) -> set[int]:
    """Ranks that open incidents name, else those that the others wait for."""
    owner = folder.owner()
    if owner and owner.output and isinstance(owner.output, str):
        with contextlib.suppress(WhichrankError):
            incidents = read_incidents(Path(owner.output) / FILE_NAME).incidents
            open_ones = [incident for incident in incidents if incident.status != "recovered"]
            named = {who.rank for incident in open_ones for who in (*incident.culprits, *incident.candidates)}
            if named:
                return named
    nothing = [watch.look.waits[:0] for watch in watches]
    if oldest_wait_ns(watches, nothing) < WAITED_LONG_NS:
        return set()
    return {watch.rank for watch in watches if not watch.look.waits.size and not watch.ended_ns}


def _read(watch: RankWatch) -> RankStacks:
    found = RankStacks(rank=watch.rank, pid=watch.pid, state=watch.process.state.name.lower())
    try:
        found.stacks = read_stacks(watch.pid)
    except StacksRefusedError as error:
        found.refused = f"{error.what}; {error.mend}" if error.mend else error.what
    return found
