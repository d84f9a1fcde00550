"""The files of a run: `incidents.jsonl` and `times.json`, written as they change, `job.json` at its start and its end.

A folder that the user named may hold another job's files. Nothing of it is lost: incidents are appended, and its
`job.json` is kept as `job-<its job>.json`. From the start `job.json` is ours, so that a reader takes the incidents that
lie there already for what they are: older.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec

from whichrank.errors import WhichrankError
from whichrank.model.incident import Incident, encode_incident
from whichrank.model.plain_text import without_key
from whichrank.server.incidents_file import FILE_NAME, JOB_FILE, job_of, read_incidents
from whichrank.server.mitigations_file import (
    NOW_FILE,
    MitigateAsked,
    Mitigated,
    MitigationNow,
    add_mitigated,
    mitigate_requests,
    write_now,
)
from whichrank.server.private_file import make_private, open_private, write_private
from whichrank.server.times_file import TIMES_FILE, Times, encode_times
from whichrank.server.validations_file import Asked, Validated, add_result, requests

_MOST_KEPT = 1000


class JobSummary(msgspec.Struct, kw_only=True):
    """What `job.json` holds; times are UTC."""

    schema: str = "whichrank.job/1"
    job: str
    command: list[str]
    started: datetime
    ended: datetime | None = None
    exit_status: int | None = None
    """As the shell shows it: 128 and the signal for a job that was killed."""
    hosts: list[str] = []
    ranks: list[int] = []
    """Ranks that were seen."""
    world_size: int | None = None
    sensors: dict[str, dict[str, int]] = {}
    """Sensor -> state -> how many ranks."""
    incidents: list[str] = []
    lost_records: int = 0
    checkpoints: str = ""
    """The folder into which the job writes its state when somebody asks for it; empty if it does not."""


class Record:
    """Writes into the folder of a run.

    Args:
        folder: Made if it is not there, for this user alone, as are all files in it.

    Raises:
        OSError: It cannot be made or written.
    """

    def __init__(self, folder: Path) -> None:
        make_private(folder)
        self.folder = folder
        self.incidents_path = folder / FILE_NAME
        self._file: IO[bytes] = open_private(self.incidents_path)
        self._validations, self._mitigations = requests(folder), mitigate_requests(folder)
        self._mitigation: MitigationNow | None = None
        self._job = ""
        self._latest: dict[str, bytes] = {}
        self._times = Times()
        self.fault = ""

    @property
    def incidents(self) -> list[str]:
        """Ids of all incidents."""
        return list(self._latest)

    def begin(self, summary: JobSummary) -> tuple[Incident, ...]:
        """Make the folder that of this job; the incidents that other jobs have left in it."""
        older: tuple[Incident, ...] = ()
        with contextlib.suppress(WhichrankError):
            reading = read_incidents(self.incidents_path)
            older = (*reading.older, *reading.incidents)
        with contextlib.suppress(OSError):
            self._end_last_line()
        self._job = summary.job
        self._keep_job_file()
        self._write_job_file(summary)
        for requested in (self._validations, self._mitigations):
            requested.remove()  # it was for another run
        with contextlib.suppress(OSError):
            (self.folder / NOW_FILE).unlink()
        return older

    def _end_last_line(self) -> None:
        """Where a run was killed as it wrote, its line must not swallow our first one."""
        with self.incidents_path.open("rb") as file:
            if not file.seek(0, os.SEEK_END):
                return
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                self._file.write(b"\n")
                self._file.flush()

    def _keep_job_file(self) -> None:
        path = self.folder / JOB_FILE
        if not os.path.lexists(path):
            return
        name = f"job-{_as_file_name(job_of(self.folder))}"
        names = [f"{name}.json", *(f"{name}-{number}.json" for number in range(1, _MOST_KEPT))]
        free = next((self.folder / n for n in names if not os.path.lexists(self.folder / n)), None)
        with contextlib.suppress(OSError):
            if free is not None:
                path.rename(free)

    def _write_job_file(self, summary: JobSummary) -> None:
        try:
            content = msgspec.json.format(msgspec.json.encode(summary), indent=2)
            write_private(self.folder / JOB_FILE, content + b"\n")
        except OSError as error:
            self.fault = error.strerror or str(error)

    def write(self, incident: Incident) -> bool:
        """Append an incident if it is new or changed; True if it was. A full disk is noted in `fault`."""
        line = encode_incident(incident)
        if self._latest.get(incident.id) == line:
            return False
        self._latest[incident.id] = line
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            self.fault = error.strerror or str(error)
        return True

    def write_times(self, times: Times) -> None:
        """Replace the file that says where the time of ranks goes, if that has changed. It is for those who watch."""
        if times == self._times:
            return
        self._times = times
        part = self.folder / f"{TIMES_FILE}.part"
        with contextlib.suppress(OSError):
            write_private(part, encode_times(times))
            part.replace(self.folder / TIMES_FILE)

    def asked(self) -> Asked | None:
        """The validation that somebody asks for; it lies there until it is answered or taken back."""
        return self._validations.asked()

    def write_validated(self, result: Validated) -> None:
        """Write down what came of one, and let others ask."""
        try:
            add_result(self.folder, result)
        except OSError as error:
            self.fault = error.strerror or str(error)
        self._validations.answered(result.asked.id)

    def mitigation_asked(self) -> MitigateAsked | None:
        """What somebody wants to be done; it lies there until it is answered or taken back."""
        return self._mitigations.asked()

    def write_mitigated(self, line: Mitigated) -> None:
        """Write down what was done about something slow, or what that has gained, and let others ask."""
        try:
            add_mitigated(self.folder, msgspec.structs.replace(line, job=self._job))
        except OSError as error:
            self.fault = error.strerror or str(error)
        self._mitigations.answered(line.request)

    def write_mitigation(self, now: MitigationNow | None) -> None:
        """Replace the file that says how it is, if that has changed; None: there is none. It is for those who watch."""
        if now != self._mitigation:
            self._mitigation = now
            with contextlib.suppress(OSError):
                write_now(self.folder, now)

    def close(self, summary: JobSummary) -> None:
        """Write `job.json` and close."""
        self._write_job_file(summary)
        with contextlib.suppress(OSError):
            self._file.close()

    def remove_if_empty(self) -> None:
        """Remove the folder, and the one that it lies in, if there is nothing in it but what every run begins with."""
        with contextlib.suppress(OSError):
            self._file.close()
            there = {entry.name for entry in os.scandir(self.folder)}
            if there <= {FILE_NAME, JOB_FILE, TIMES_FILE} and not self.incidents_path.stat().st_size:
                for name in there:
                    (self.folder / name).unlink()
                self.folder.rmdir()
                self.folder.parent.rmdir()


def _as_file_name(job: str) -> str:
    """The name of a job as the end of a file name; whatever was read there."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in job)[:63] or "before"


def readable(command: Sequence[str]) -> list[str]:
    """A command as JSON can hold it: what is no UTF-8 in its arguments is replaced, and so is the key of a job."""
    return [without_key(os.fsencode(argument).decode("utf-8", "replace")) for argument in command]


def utc_now() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)
