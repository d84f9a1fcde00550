"""Reads `incidents.jsonl`: one incident per line, the last line of an id wins.

A job may be writing while we read, or may have died while it wrote: a last line without its newline is unfinished and
is passed over. Any other line that is no incident is reported with its place and the rest is still used.
An incident of an unknown version stops the reading, for its id may replace one that we know.
A folder that was named with `--output` may hold several jobs, one after the other: those of the latest one are what it
says, the others are kept apart.
Only regular files are read: a pipe would keep us waiting for whoever writes to it.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from whichrank.errors import IncidentFormatError, IncompleteDataError, WhichrankError
from whichrank.model.incident import SCHEMA, Incident, decode_incident
from whichrank.server.regular_file import open_regular

FILE_NAME = "incidents.jsonl"
JOB_FILE = "job.json"
RUNS = "whichrank-out"


class Reading(msgspec.Struct, frozen=True):
    """What a file held."""

    path: Path
    incidents: tuple[Incident, ...]
    """Of the latest job, in order of their first line."""
    faults: tuple[IncompleteDataError, ...]
    """What could not be used: the lines that are no incident, reported together, and an unfinished last line."""
    older: tuple[Incident, ...] = ()
    """Of the jobs that wrote here before."""
    job: str = ""
    """The latest job: the one of `job.json`, else that of the last line."""


class JobFile(msgspec.Struct, frozen=True):
    """What is read of `job.json`."""

    job: str = ""
    world_size: int | None = None
    """None: not known."""
    hosts: tuple[str, ...] = ()
    ended: datetime | None = None
    """None: it runs, or was killed."""
    command: tuple[str, ...] = ()
    checkpoints: str = ""
    """Where it writes its state when somebody asks for it; empty if it does not."""


def read_incidents(path: Path) -> Reading:
    """Read one `incidents.jsonl`.

    Raises:
        IncompleteDataError: It is missing or cannot be read.
        IncidentFormatError: It holds an incident of another version.
    """
    content = _content(path)
    job = job_of(path.parent) if path.name == FILE_NAME else ""
    last_job = ""
    latest: dict[str, Incident] = {}
    faults: list[IncompleteDataError] = []
    bad: list[tuple[int, str]] = []
    *lines, unfinished = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            incident = decode_incident(line)
        except IncidentFormatError as error:
            if error.mend:  # another version
                raise IncidentFormatError(error.what, where=f"{path}, line {number}", mend=error.mend) from error
            bad.append((number, error.what))
            continue
        except RecursionError:
            bad.append((number, f"this is no incident of format {SCHEMA}: it is nested too deeply"))
            continue
        latest[incident.id] = incident
        last_job = incident.job
    job = job or (last_job if path.name == FILE_NAME else "")
    if bad:
        faults.append(_reported_together(path, bad))
    if unfinished.strip():
        where = f"{path}, line {len(lines) + 1}"
        faults.append(IncompleteDataError(f"the last {SCHEMA} line is unfinished", where=where, mend="read again"))
    reported = tuple(one for one in latest.values() if not job or one.job == job)
    older = tuple(one for one in latest.values() if job and one.job != job)
    return Reading(path=path, incidents=reported, faults=tuple(faults), older=older, job=job)


def job_of(folder: Path) -> str:
    """The job that `job.json` in this folder is of; empty if there is none that can be read."""
    return job_file(folder).job


def job_file(folder: Path) -> JobFile:
    """What `job.json` in this folder says; nothing if there is none that can be read."""
    try:
        return msgspec.json.decode(_content(folder / JOB_FILE), type=JobFile)
    except (WhichrankError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return JobFile()


def _content(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise unreadable(path, getattr(error, "strerror", None) or str(error)) from error


def unreadable(path: Path, why: str) -> IncompleteDataError:
    """The error of a record that cannot be read."""
    return IncompleteDataError(
        f"there is no record of incidents to read: {why}",
        where=str(path),
        mend="whichrank run -- COMMAND writes one; name its folder: whichrank why DIR",
    )


def _reported_together(path: Path, bad: list[tuple[int, str]]) -> IncompleteDataError:
    number, what = bad[0]
    where = f"{path}, line {number}"
    if len(bad) == 1:
        return IncompleteDataError(what, where=where, mend="remove the line; the rest is used")
    what = f"{len(bad)} lines are no incident; of the first one: {what}"
    return IncompleteDataError(what, where=where, mend="remove these lines, or name another file; the rest is used")
