"""The incident format: it round-trips, refuses what it does not know, and cannot name where nobody is to be named."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from incident_cases import EVERY, RANK_5, incident, not_entered

from whichrank.errors import IncidentFormatError
from whichrank.model.evidence import Evidence
from whichrank.model.incident import Cause, Incident, Victims, decode_incident, encode_incident
from whichrank.model.schema import incident_schema_text

DOCUMENTED = Path(__file__).parents[3] / "docs" / "reference" / "incident.schema.json"

FIELDS = [
    *("schema", "id", "job", "severity", "status", "kind", "cause", "reason", "class", "culprits", "candidates"),
    *("links", "communicator", "op", "stage", "onset", "detected", "located", "ended", "victims", "evidence", "times"),
    *("next", "sensors", "complete"),
]


@pytest.mark.parametrize("case", EVERY.values(), ids=EVERY)
def test_round_trip_in_one_line(case: Incident) -> None:
    line = encode_incident(case)
    assert b"\n" not in line
    assert decode_incident(line) == case


def test_fields_are_pinned() -> None:
    document = json.loads(encode_incident(not_entered()))
    assert list(document) == FIELDS
    assert document["schema"] == "whichrank.incident/1"
    assert document["class"] == "H1"
    assert document["onset"] == "2026-01-02T03:04:05Z"
    assert list(document["culprits"][0]) == ["rank", "confidence", "why", "clauses", "host", "pid", "device"]
    assert document["victims"] == {"count": 7, "ranks": [0, 1, 2, 3, 4, 6, 7]}


def test_documented_schema_is_current() -> None:
    mend = "python -m whichrank.model.schema > docs/reference/incident.schema.json"
    assert DOCUMENTED.read_text(encoding="utf-8") == incident_schema_text(), mend


def test_other_version_is_refused_in_one_sentence() -> None:
    line = encode_incident(not_entered()).replace(b"incident/1", b"incident/2")
    with pytest.raises(IncidentFormatError) as caught:
        decode_incident(line)
    assert caught.value.what == (
        "this incident has format 'whichrank.incident/2', and this whichrank reads 'whichrank.incident/1' only"
    )
    assert caught.value.mend == "pip install --upgrade whichrank"


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"null", b"{}", b'{"schema": 1}', b'{"schema": "whichrank.incident/1"}', b"\xff\xfe", b'"x"'],
)
def test_foreign_text_is_refused(line: bytes) -> None:
    with pytest.raises(IncidentFormatError, match="no incident of format"):
        decode_incident(line)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("severity", "panic"),
        ("cause", "gremlins"),
        ("reason", "bad luck"),
        ("class", "H9"),
        ("detected", "2026-01-02T03:04:05"),
        ("surprise", 1),
        ("victims", {"count": 1, "ranks": [1, 2]}),
        ("culprits", [{"rank": -1, "confidence": 1, "why": ""}]),
        ("culprits", [{"rank": 1, "confidence": 1.5, "why": ""}]),
    ],
)
def test_unknown_field_or_value_is_refused(field: str, value: object) -> None:
    document = json.loads(encode_incident(not_entered())) | {field: value}
    with pytest.raises(IncidentFormatError):
        decode_incident(json.dumps(document))


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError):
        not_entered().status = "final"  # type: ignore[misc]


@pytest.mark.parametrize("cause", [Cause.UNKNOWN, Cause.IMBALANCE, Cause.SUSPENDED])
def test_cause_without_fault_names_no_culprit(cause: Cause) -> None:
    with pytest.raises(ValueError, match="names no culprit"):
        incident(cause, culprits=(RANK_5,))


def test_candidates_stand_beside_unknown_or_where_telemetry_was_missing() -> None:
    with pytest.raises(ValueError, match="candidates stand beside cause unknown"):
        not_entered(candidates=(RANK_5,), complete=True)
    with pytest.raises(ValueError, match="candidates stand beside cause unknown"):
        not_entered(culprits=(), candidates=(RANK_5,), complete=False)
    assert not_entered(candidates=(RANK_5,), complete=False).candidates == (RANK_5,)


def test_recovered_has_its_end() -> None:
    with pytest.raises(ValueError, match="time of its end"):
        not_entered(status="recovered")


def test_victims_are_counted_in_full() -> None:
    assert Victims(count=60_000, ranks=(1, 2)).count == 60_000
    with pytest.raises(ValueError, match="2 victims are listed but 1 counted"):
        Victims(count=1, ranks=(1, 2))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_evidence_is_a_number(value: float) -> None:
    with pytest.raises(ValueError, match="has no number"):
        Evidence(what="rate", value=value)


def test_times_are_utc() -> None:
    line = encode_incident(not_entered()).replace(b"03:04:05Z", b"05:04:05+02:00")
    onset = decode_incident(line).onset
    assert isinstance(onset, datetime)
    assert onset == not_entered().onset


def test_schema_accepts_what_is_written() -> None:
    schema = json.loads(incident_schema_text())
    properties = schema["$defs"]["Incident"]["properties"]
    assert sorted(properties) == sorted(FIELDS)
    assert schema["$defs"]["Incident"]["additionalProperties"] is False
    assert msgspec.json.decode(encode_incident(not_entered())).keys() == properties.keys()
