"""The files of a run: `incidents.jsonl`, written as incidents change, and `job.json` at its end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec

from whichrank.model.incident import Incident, encode_incident
from whichrank.surface.incidents_file import FILE_NAME

JOB_FILE = "job.json"


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


class Record:
    """Writes into the folder of a run.

    Args:
        folder: Made if it is not there.

    Raises:
        OSError: It cannot be made or written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.incidents_path = folder / FILE_NAME
        self._file: IO[bytes] = self.incidents_path.open("ab")
        self._latest: dict[str, bytes] = {}
        self.fault = ""

    @property
    def incidents(self) -> list[str]:
        """Ids of all incidents."""
        return list(self._latest)

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

    def close(self, summary: JobSummary) -> None:
        """Write `job.json` and close."""
        try:
            content = msgspec.json.format(msgspec.json.encode(summary), indent=2)
            (self.folder / JOB_FILE).write_bytes(content + b"\n")
        except OSError as error:
            self.fault = error.strerror or str(error)
        with contextlib.suppress(OSError):
            self._file.close()


def readable(command: Sequence[str]) -> list[str]:
    """A command as JSON can hold it: what is no UTF-8 in its arguments is replaced."""
    return [os.fsencode(argument).decode("utf-8", "replace") for argument in command]


def utc_now() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)
