"""Which record is meant: the one of a folder, of a file, of an id, of a job that runs here, or of the newest run.

Whoever asks while an alert is on the screen means that job, wherever it writes: so jobs that run on this node come
before folders that lie here. Of running jobs only those count that have an incident; a healthy one beside the run that
somebody wants to read again is no answer.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from whichrank.errors import UsageError, WhichrankError
from whichrank.ring.folder import job_folders
from whichrank.server.incidents_file import FILE_NAME, RUNS, Reading, read_incidents, unreadable
from whichrank.server.place import absolute


class Found(msgspec.Struct, frozen=True):
    """A record, and what else there is."""

    reading: Reading
    others: tuple[Path, ...] = ()
    """Folders of other running jobs that have incidents, too."""
    healthy: tuple[Path, ...] = ()
    """Folders of running jobs without an incident, where an older run is reported instead."""


def find_record(target: str | None, root: Path = Path(RUNS)) -> Found:
    """The incidents of a folder, of a file, of an id (`ID` or `DIR/ID`), or (None) of a running job or the newest run.

    For an id, the reading holds that incident only.

    Raises:
        UsageError: There is no run, folder or id of that name.
        IncompleteDataError: See `read_incidents`.
        IncidentFormatError: See `read_incidents`.
    """
    if target is None:
        return _newest(root)
    if kind := _kind(Path(target)):
        path = Path(target)
        return Found(read_incidents(path / FILE_NAME if stat.S_ISDIR(kind) else path))
    named = Path(target)
    if reading := _with_id(named.name, [named.parent / FILE_NAME]):
        return Found(reading)
    if reading := _with_id(target, (folder / FILE_NAME for folder in [*runs_newest_first(root), *_running()])):
        return Found(reading)
    raise UsageError(
        f"there is no folder and no incident called '{target}'",
        where=str(absolute(root)),
        mend="whichrank why  shows the newest run; of one that wrote elsewhere (--output DIR): whichrank why DIR/ID",
    )


def paths_or_newest(paths: Sequence[Path]) -> Sequence[Path]:
    """These paths; if there are none, the folder of a running job or the newest run, as `find_record` has it.

    Raises:
        UsageError: There is no run.
        IncompleteDataError: See `read_incidents`.
        IncidentFormatError: See `read_incidents`.
    """
    return paths or [find_record(None).reading.path.parent]


def runs_newest_first(root: Path = Path(RUNS)) -> list[Path]:
    """The folders of runs under `root`."""
    folders = [folder for folder in root.glob("*") if folder.is_dir()]
    return sorted(folders, key=_last_written, reverse=True)


def _newest(root: Path) -> Found:
    running = list(_running())
    readings = []
    for folder in running:
        with contextlib.suppress(WhichrankError):
            readings.append(read_incidents(folder / FILE_NAME))
    reported = sorted((reading for reading in readings if reading.incidents), key=_has_no_open_alert)
    if reported:
        return Found(reported[0], tuple(reading.path.parent for reading in reported[1:]))
    runs = runs_newest_first(root) or running
    if not runs:
        raise UsageError(
            "no run was found here",
            where=str(absolute(root)),
            mend="name its folder, or start one: whichrank run -- COMMAND",
        )
    is_older = not any(_is_same(runs[0], folder) for folder in running)
    return Found(read_incidents(runs[0] / FILE_NAME), healthy=tuple(running) if is_older else ())


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths are of one folder, by whatever links they lead there."""
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)  # noqa: PTH121
    return absolute(one) == absolute(other)


def _running() -> Iterator[Path]:
    """Where the jobs that run on this node write, the newest first."""
    seen = set()
    for folder in job_folders():
        owner = folder.owner()
        output = owner.output if owner and isinstance(owner.output, str) else ""
        if output and output not in seen and not folder.is_dead() and os.path.isfile(Path(output) / FILE_NAME):  # noqa: PTH113  # False, too, for what we may not see
            seen.add(output)
            yield Path(output)


def _has_no_open_alert(reading: Reading) -> bool:
    return not any(incident.severity == "alert" and incident.status == "open" for incident in reading.incidents)


def _with_id(incident_id: str, paths: Iterable[Path]) -> Reading | None:
    """The first record with this incident, and nothing but that one in it."""
    for path in paths:
        if os.path.isfile(path):  # noqa: PTH113  # False, too, for what we may not see
            reading = read_incidents(path)
            found = tuple(one for one in (*reading.incidents, *reading.older) if one.id == incident_id)
            if found:
                return msgspec.structs.replace(reading, incidents=found, older=())
    return None


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
        raise unreadable(path, error.strerror or str(error)) from error


def _last_written(folder: Path) -> float:
    for path in (folder / FILE_NAME, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0
