"""Whether a timed job was watched in full and was healthy."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from whichrank.errors import SensorError
from whichrank.model.incident import Cause, Culprit, Incident, Severity, encode_incident
from whichrank.testbed.bench.observed import check_observed

SENSORS = ["c10d", "socket"]
ON: dict[str, object] = {"ranks": [0, 1], "sensors": {"c10d": {"on": 2}, "socket": {"on": 2}, "frames": {"off": 2}}}


def folder_of(path: Path, summary: dict[str, object], *severities: Severity) -> Path:
    (path / "job.json").write_text(json.dumps(summary))
    lines = [
        encode_incident(
            Incident(
                id=f"i-{at}", job="j", severity=severity, status="open", kind="slow", cause=Cause.COMPUTE_SLOW,
                culprits=(Culprit(rank=1, confidence=0.9, why="it is slow"),), complete=True,
                detected=datetime(2026, 1, 1, tzinfo=UTC),
            )
        )
        for at, severity in enumerate(severities)
    ]  # fmt: skip
    (path / "incidents.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def test_job_that_was_watched_in_full_is_taken_also_with_a_notice(tmp_path: Path) -> None:
    check_observed(folder_of(tmp_path, ON, "notice"), 2, SENSORS)


@pytest.mark.parametrize(
    "changed",
    [
        {"ranks": [0]},
        {"sensors": {"c10d": {"fallback": 2}, "socket": {"on": 2}}},
        {"sensors": {"c10d": {"on": 2}, "socket": {"on": 1, "absent": 1}}},
        {"sensors": {"c10d": {"on": 2}}},
    ],
)
def test_cost_of_a_job_that_was_watched_in_part_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    with pytest.raises(SensorError, match="not observed in full"):
        check_observed(folder_of(tmp_path, ON | changed), 2, SENSORS)


def test_cost_of_a_job_with_an_alert_is_refused_and_it_is_said_which(tmp_path: Path) -> None:
    with pytest.raises(SensorError, match=r"had an alert.*rank 1"):
        check_observed(folder_of(tmp_path, ON, "notice", "alert"), 2, SENSORS)
