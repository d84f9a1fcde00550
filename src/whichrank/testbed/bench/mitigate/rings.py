"""The rings of a job that runs under `whichrank run`, for who tells its ranks something from outside."""

from __future__ import annotations

from pathlib import Path

from whichrank.ring.folder import job_folders


def rings_of(output: Path) -> list[Path]:
    """Of a run that writes into this folder; none while there are none."""
    for folder in job_folders():
        owner = folder.owner()
        if owner is not None and owner.output and Path(owner.output) == output.resolve():
            return folder.rings()
    return []
