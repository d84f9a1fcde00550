"""What a server makes of shares of the work, of incidents and of iterations."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest

from whichrank.act.planner import Effect, Level
from whichrank.model.incident import Cause, Culprit, Incident, Link
from whichrank.model.job_now import Lately
from whichrank.model.telemetry import SHARES_REPORTED, VERSION, Batch
from whichrank.server.mitigations import EVERY_S, Decided, Mitigations
from whichrank.server.mitigations_file import MITIGATIONS_FILE, add_mitigated, of_action, of_effect

RANKS = 4
AT = datetime(2026, 11, 28, tzinfo=UTC)
NAMED = Incident(
    id="job-1",
    job="job",
    severity="alert",
    status="open",
    kind="slow",
    cause=Cause.COMPUTE_SLOW,
    culprits=(Culprit(rank=1, confidence=0.9, why=""),),
    onset=AT,
    detected=AT,
    complete=True,
)
LATELY = Lately(np.arange(RANKS), np.arange(20), np.tile([[0.4], [0.8], [0.4], [0.4]], 20), np.full((RANKS, 20), 0.9))


def offered(*, is_auto: bool, incident: Incident = NAMED) -> Mitigations:
    """Four ranks offer four microbatches each, and one of them is named."""
    rows = np.zeros(RANKS, SHARES_REPORTED)
    rows["rank"] = rows["shares"]["replica"] = range(RANKS)
    for name, value in (("microbatches", 16), ("multiple", 1), ("replicas", RANKS)):
        rows["shares"][name] = value
    mitigations = Mitigations(is_auto=is_auto)
    batch = Batch(VERSION, "j", "a:1", "a", 1, 0, 0, -1, RANKS, shares=rows.tobytes())
    mitigations.feed([batch])
    mitigations.note([incident])
    return mitigations


def advanced(mitigations: Mitigations, ended: tuple[int, ...] = ()) -> list[tuple[Decided, dict[str, list[int]]]]:
    """What is decided in a hundred looks, and which ranks of which agents are told."""
    found = []
    for at in range(100):
        lately = Lately(LATELY.ranks, LATELY.number + at, LATELY.own_s, LATELY.total_s)
        decided = mitigations.advance(
            lambda lately=lately: lately, lambda: ended, lambda: dict(enumerate("aabb")), at * EVERY_S
        )
        if decided:
            orders = {agent: [share.rank for share in order.shares] for agent, order in decided[1].items()}
            found.append((decided[0], orders))
    return found


def test_agents_are_told_what_is_for_their_ranks() -> None:
    ((decided, orders),) = advanced(offered(is_auto=True))
    assert decided.is_made
    assert decided.action.after == (5, 2, 5, 4)
    assert orders == {"a": [0, 1], "b": [2, 3]}


def test_nobody_is_told_without_auto_nor_where_it_is_not_sure() -> None:
    unsure = msgspec.structs.replace(NAMED, culprits=(Culprit(rank=1, confidence=0.5, why=""),))
    for mitigations in (offered(is_auto=False), offered(is_auto=True, incident=unsure)):
        ((decided, orders),) = advanced(mitigations)
        assert (decided.is_made, orders) == (False, {})


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "notice"},
        {"status": "recovered", "ended": AT},
        {"kind": "hang"},
        {"cause": Cause.COMMUNICATION_SLOW, "links": (Link(src=1, dst=2),)},
        {"culprits": ()},
    ],
)
def test_nothing_is_decided_without_an_alert_that_names_who_computes_slowly(changes: dict[str, object]) -> None:
    assert advanced(offered(is_auto=True, incident=msgspec.structs.replace(NAMED, **changes))) == []


def test_incident_that_is_over_names_nobody_any_more() -> None:
    mitigations = offered(is_auto=True)
    mitigations.note([msgspec.structs.replace(NAMED, status="recovered", ended=AT)])
    assert advanced(mitigations) == []


def test_job_of_which_a_rank_has_ended_is_left_alone() -> None:
    assert advanced(offered(is_auto=True), ended=(3,)) == []


def test_what_was_done_stands_in_a_file_line_by_line(tmp_path: Path) -> None:
    ((decided, _),) = advanced(offered(is_auto=False))
    made, effect = Decided(decided.action, is_made=True), Effect(Level.REBALANCE, 0.9, 0.6, 0.61)
    for line in (of_action(decided, AT), of_action(made, AT), of_effect(effect, AT)):
        add_mitigated(tmp_path, line)
    lines = [json.loads(line) for line in (tmp_path / MITIGATIONS_FILE).read_text().splitlines()]
    assert [line["what"] for line in lines] == ["advised", "made", "measured"]
    assert lines[2]["measured_s"] == 0.61
    assert lines[0]["schema"] == "whichrank.mitigation/1"
    assert (lines[0]["before"], lines[0]["after"], lines[0]["why"]) == ([4] * 4, [5, 2, 5, 4], "impact")
    assert lines[0]["now_s"] == 0.9
    assert lines[0]["predicted_s"] == pytest.approx(0.6)
    assert (tmp_path / MITIGATIONS_FILE).stat().st_mode & 0o077 == 0
