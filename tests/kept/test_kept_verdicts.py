"""Recorded runs get the verdicts that they have had: who, what, when and how sure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verdicts import TAPES, VERDICTS, name_of, said_of

KNOWN = {kept["tape"]: kept["said"] for kept in map(json.loads, VERDICTS.read_text(encoding="utf-8").splitlines())}


def test_there_are_enough_and_each_is_known() -> None:
    assert len(TAPES) >= 40
    assert {name_of(tape) for tape in TAPES} == set(KNOWN)


@pytest.mark.parametrize("tape", TAPES, ids=name_of)
def test_a_recorded_run_has_the_verdict_that_it_had(tape: Path) -> None:
    # WHEN a run of which the telemetry is kept is gone through again
    said = said_of(tape)
    # THEN each incident changes as it did, bit for bit but for words
    assert json.loads(json.dumps(said)) == KNOWN[name_of(tape)]
