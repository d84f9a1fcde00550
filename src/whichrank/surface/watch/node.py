"""The jobs of this user on this node, found anew at every snapshot.

A job that ends is kept, so that its verdict does not vanish from the screen: its folder goes when `whichrank run` ends,
but its rings stay open here and its incidents stay on disk.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from whichrank.errors import UsageError
from whichrank.model.incident import Culprit
from whichrank.ring.folder import JobFolder, base_folder, job_folders
from whichrank.ring.reader import Scratch
from whichrank.surface.watch.frame import Frame, JobNow
from whichrank.surface.watch.job import JobReader
from whichrank.surface.watch.ranks import named_ranks

KEPT_AFTER_THE_END: Final = 2


class NodeReader:
    """Reads frames; use it in a `with`.

    Args:
        job: Only this job; None: all that run.

    Raises:
        UsageError: There is no job of this name here.
    """

    def __init__(self, job: str | None = None) -> None:
        self._only = job
        self._scratch = Scratch()
        self._readers: dict[tuple[str, int], JobReader] = {}
        self._host = socket.gethostname()
        folders = _folders()
        if job is not None and all(folder.job != job for folder in folders):
            known = ", ".join(folder.job for folder in folders)
            raise UsageError(
                f"there is no job '{job}' on this node",
                where=str(base_folder()),
                mend=f"whichrank watch JOB, with one of: {known}" if known else "whichrank run -- COMMAND starts one",
            )

    def __enter__(self) -> NodeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all rings."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def read(self) -> Frame:
        """Look at all jobs now: running ones first, the newest on top."""
        self._discover()
        for reader in self._readers.values():
            reader.read_incidents()
        named = named_ranks(incident for reader in self._readers.values() for incident in reader.incidents)
        here = {(who.rank, who.pid) for who in self._named_here()}
        marks = {key: mark for key, mark in named.items() if key in here}
        jobs = [reader.read(marks) for reader in self._readers.values()]
        return Frame(at=datetime.now(UTC), host=self._host, jobs=tuple(sorted(jobs, key=_newest_first)))

    def _named_here(self) -> Iterator[Culprit]:
        """Whom incidents name on this host by pid."""
        for reader in self._readers.values():
            for incident in reader.incidents:
                for who in (*incident.culprits, *incident.candidates):
                    if who.host == self._host and who.pid is not None:
                        yield who

    def _discover(self) -> None:
        there: dict[tuple[str, int], JobFolder] = {}
        for folder in _folders():
            with contextlib.suppress(OSError):
                there[folder.job, folder.path.stat().st_ino] = folder
        for key, folder in there.items():
            if key not in self._readers and self._wants(folder):
                self._readers[key] = JobReader(folder, self._scratch)
        for key, reader in self._readers.items():
            reader.is_over = key not in there
        over = [key for key, reader in self._readers.items() if reader.is_over]
        for key in over[:-KEPT_AFTER_THE_END]:
            self._readers.pop(key).close()

    def _wants(self, folder: JobFolder) -> bool:
        return folder.job == self._only if self._only is not None else not folder.is_dead()


def _folders() -> list[JobFolder]:
    try:
        return job_folders()
    except OSError:  # a folder went away while it was looked at
        return []


def _newest_first(job: JobNow) -> tuple[bool, float]:
    return job.state == "ended", -job.started.timestamp() if job.started else 0.0
