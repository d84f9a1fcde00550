"""What a validation adds to an incident."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from whichrank.act.judgement import SlowLink, SlowRank
from whichrank.model.incident import Cause, Culprit, Incident, decode_incident, encode_incident
from whichrank.server.proved import with_facts
from whichrank.server.validations_file import Asked, Validated

NAMED = Incident(
    id="job-1",
    job="job",
    severity="alert",
    status="open",
    kind="slow",
    cause=Cause.COMPUTE_SLOW,
    culprits=(Culprit(rank=3, confidence=0.9, why="computes longer"),),
    onset=datetime(2026, 1, 1, tzinfo=UTC),
    detected=datetime(2026, 1, 1, tzinfo=UTC),
    complete=True,
)


def facts(**result: object) -> dict[str, object]:
    validated = msgspec.structs.replace(Validated(asked=Asked(why="job-1"), paused_s=2.5, seen_from=1.4), **result)
    incident = with_facts(NAMED, validated)
    assert decode_incident(encode_incident(incident)) == incident
    return {f"{fact.what} ({fact.where})": fact.value for fact in incident.evidence}


def test_slow_rank_has_its_factor_and_the_pause_its_length() -> None:
    assert facts(slow_ranks=(SlowRank(3, "compute", 2.345),)) == {
        "time for the same computation with the job at rest (rank 3)": 2.35,
        "training paused to measure (None)": 2.5,
    }


def test_rank_that_is_as_quick_as_others_at_rest_is_said_so() -> None:
    said = facts()
    assert (
        said["time for the same computation with the job at rest (rank 3)"] == "no more than 1.4 times that of others"
    )


def test_rank_that_could_not_be_measured_is_not_said_to_be_quick() -> None:
    assert facts(problems={3: "no device"}) == {"training paused to measure (None)": 2.5}


def test_slow_link_has_its_rate() -> None:
    said = facts(slow_links=(SlowLink(1, 2, 4.0, 25e6, 1e8),), seen_from=0.0)
    assert said["rate with the job at rest (rank 1 to rank 2)"] == 25_000_000
    assert said["rate of other links with the job at rest (None)"] == 100_000_000


def test_what_was_given_up_says_why() -> None:
    said = facts(problem="rank 2 has ended", seen_from=0.0, paused_s=0.0)
    assert said == {"validation given up (None)": "rank 2 has ended"}
