"""Reads `incidents.jsonl`: one incident per line, the last line of an id wins.

A job may be writing while we read, or may have died while it wrote: a last line without its newline is unfinished and
is passed over. Any other line that is no incident is reported with its place and the rest is still used.
An incident of an unknown version stops the reading, for its id may replace one that we know.
Only regular files are read: a pipe would keep us waiting for whoever writes to it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from whichrank.errors import IncidentFormatError, IncompleteDataError, UsageError
from whichrank.model.incident import SCHEMA, Incident, decode_incident
from whichrank.surface.place import absolute

FILE_NAME = "incidents.jsonl"
RUNS = "whichrank-out"


class Reading(msgspec.Struct, frozen=True):
    """What a file held."""

    path: Path
    incidents: tuple[Incident, ...]
    """In order of their first line."""
    faults: tuple[IncompleteDataError, ...]
    """What could not be used: the lines that are no incident, told together, and an unfinished last line."""


def read_incidents(path: Path) -> Reading:
    """Read one `incidents.jsonl`.

    Raises:
        IncompleteDataError: It is missing or cannot be read.
        IncidentFormatError: It holds an incident of another version.
    """
    content = _content(path)
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
    if bad:
        faults.append(_told_together(path, bad))
    if unfinished.strip():
        where = f"{path}, line {len(lines) + 1}"
        faults.append(IncompleteDataError(f"the last {SCHEMA} line is unfinished", where=where, mend="read again"))
    return Reading(path=path, incidents=tuple(latest.values()), faults=tuple(faults))


def _content(path: Path) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read()
            why, cause = "it is no regular file", None
    except (OSError, ValueError) as error:  # ValueError: no file is called like that
        why, cause = getattr(error, "strerror", None) or str(error), error
    raise _unreadable(path, why) from cause


def _unreadable(path: Path, why: str) -> IncompleteDataError:
    return IncompleteDataError(
        f"there is no record of incidents to read: {why}",
        where=str(path),
        mend="whichrank run -- COMMAND writes one; name its folder: whichrank why DIR",
    )


def _told_together(path: Path, bad: list[tuple[int, str]]) -> IncompleteDataError:
    number, what = bad[0]
    where = f"{path}, line {number}"
    if len(bad) == 1:
        return IncompleteDataError(what, where=where, mend="remove the line; the rest is used")
    what = f"{len(bad)} lines are no incident; of the first one: {what}"
    return IncompleteDataError(what, where=where, mend="remove these lines, or name another file; the rest is used")


def runs_newest_first(root: Path = Path(RUNS)) -> list[Path]:
    """The folders of runs under `root`."""
    folders = [folder for folder in root.glob("*") if folder.is_dir()]
    return sorted(folders, key=_last_written, reverse=True)


def find_reading(target: str | None, root: Path = Path(RUNS)) -> Reading:
    """The incidents of a folder, of a file, of the run that has an incident id, or (None) of the newest run.

    For an id, the reading holds that incident only.

    Raises:
        UsageError: There is no run, folder or id of that name.
        IncompleteDataError: See `read_incidents`.
        IncidentFormatError: See `read_incidents`.
    """
    if target is not None and (kind := _kind(Path(target))):
        path = Path(target)
        return read_incidents(path / FILE_NAME if stat.S_ISDIR(kind) else path)
    runs = runs_newest_first(root)
    if target is None:
        if not runs:
            raise UsageError(
                "no run was found here",
                where=str(absolute(root)),
                mend="whichrank why DIR, or start one: whichrank run -- COMMAND",
            )
        return read_incidents(runs[0] / FILE_NAME)
    return _with_id(target, (run / FILE_NAME for run in runs), root)


def _with_id(incident_id: str, paths: Iterable[Path], root: Path) -> Reading:
    for path in paths:
        if os.path.isfile(path):  # noqa: PTH113  # False, too, for what we may not see
            reading = read_incidents(path)
            found = tuple(incident for incident in reading.incidents if incident.id == incident_id)
            if found:
                return Reading(path=path, incidents=found, faults=reading.faults)
    raise UsageError(
        f"there is no folder and no incident called '{incident_id}'",
        where=str(absolute(root)),
        mend="whichrank why  shows the newest run; whichrank why DIR  another one",
    )


def _kind(path: Path) -> int:
    """The mode of what lies there; 0 if there is nothing.

    Raises:
        IncompleteDataError: We are not allowed to know.
    """
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: no file is called like that
        return 0
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error


def _last_written(folder: Path) -> float:
    for path in (folder / FILE_NAME, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0
