"""Whether a timed job was watched in full and was healthy: else its cost says nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from whichrank.errors import SensorError
from whichrank.model.incident import decode_incident


def check_observed(folder: Path, ranks: int, sensors: Sequence[str]) -> None:
    """See in the folder of a run that nothing was missing, and that nothing was wrong. A notice is no fault.

    Args:
        folder: Of the run.
        ranks: That the job has.
        sensors: That must be on in all of them.

    Raises:
        SensorError: A rank or a sensor was missing, or there was an alert.
    """
    summary = json.loads((folder / "job.json").read_bytes())
    wanted = {name: {"on": ranks} for name in sensors}
    known = {name: summary["sensors"].get(name) for name in sensors}
    if summary["ranks"] != list(range(ranks)) or known != wanted:
        found = f"ranks {summary['ranks']}, sensors {summary['sensors']}"
        raise SensorError(f"the timed job was not observed in full ({found})", mend="whichrank doctor")
    reported = map(decode_incident, (folder / "incidents.jsonl").read_bytes().splitlines())
    if alert := next((one for one in reported if one.severity == "alert"), None):
        named = ", ".join(f"rank {culprit.rank}" for culprit in alert.culprits) or "no rank"
        raise SensorError(f"the timed job had an alert, so it was no healthy run ({alert.cause}, {named})")
