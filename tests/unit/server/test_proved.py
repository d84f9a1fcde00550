"""What a validation adds to an incident."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from whichrank.act.judgement import SlowLink, SlowRank
from whichrank.model.finding import Blame
from whichrank.model.incident import Cause, Culprit, Incident, Link, Reason, Stage, decode_incident, encode_incident
from whichrank.server.proved import with_result
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


def culprit(blame: Blame) -> Culprit:
    return Culprit(rank=blame.rank, confidence=blame.confidence, why="", host=f"node-{blame.rank}")


def judged(incident: Incident, **result: object) -> Incident:
    validated = msgspec.structs.replace(Validated(asked=Asked(why="job-1"), paused_s=2.5, seen_from=1.4), **result)
    return with_result(incident, validated, culprit)


def facts(**result: object) -> dict[str, object]:
    validated = msgspec.structs.replace(Validated(asked=Asked(why="job-1"), paused_s=2.5, seen_from=1.4), **result)
    incident = with_result(NAMED, validated, culprit)
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


LINKS = msgspec.structs.replace(
    NAMED, cause=Cause.COMMUNICATION_SLOW, culprits=(), links=(Link(src=1, dst=2, end="path"),)
)
NOBODY = msgspec.structs.replace(NAMED, cause=Cause.UNKNOWN, culprits=(), severity="notice")
SLOW_4 = (SlowRank(4, "compute", 2.0),)
SLOW_5_TO_6 = (SlowLink(5, 6, 4.0, 25e6, 1e8),)


def test_rank_that_is_named_stands_where_it_is_slow_at_rest_or_nobody_is() -> None:
    for slow in ((), (SlowRank(3, "compute", 2.0),), (SlowRank(3, "compute", 2.0), *SLOW_4)):
        assert judged(NAMED, slow_ranks=slow).culprits == NAMED.culprits


def test_named_rank_and_another_that_is_slow_at_rest_are_candidates() -> None:
    both = judged(NAMED, slow_ranks=SLOW_4)
    assert (both.cause, both.culprits, [one.rank for one in both.candidates]) == (Cause.UNKNOWN, (), [3, 4])
    assert decode_incident(encode_incident(both)) == both


def test_rank_of_which_a_reason_is_known_stands_beside_another_slow_one() -> None:
    waits = msgspec.structs.replace(NAMED, reason=Reason.DATA_WAIT)
    assert judged(waits, slow_ranks=SLOW_4).culprits == NAMED.culprits


def test_copy_of_memory_names_nobody() -> None:
    memory = (SlowRank(4, "memory", 3.0),)
    assert judged(NAMED, slow_ranks=memory).culprits == NAMED.culprits
    assert judged(NOBODY, slow_ranks=memory).cause == Cause.UNKNOWN


def test_link_that_is_slow_at_rest_stands() -> None:
    for slow in (SlowLink(1, 2, 4.0, 25e6, 1e8), SlowLink(2, 1, 4.0, 25e6, 1e8)):
        assert judged(LINKS, slow_links=(slow, *SLOW_5_TO_6)).links == LINKS.links


def test_link_that_is_as_quick_as_others_at_rest_is_left_out_if_another_named_one_is_slow() -> None:
    # GIVEN two named links, one of which is slow at rest
    both = msgspec.structs.replace(LINKS, links=(*LINKS.links, Link(src=7, dst=0)))
    slow, sound = (SlowLink(1, 2, 4.0, 25e6, 1e8),), (SlowLink(7, 0, 1.1, 9e7, 1e8),)
    said = judged(both, slow_links=slow, sound_links=sound)
    # THEN the other one is no fault any more, and why is said
    assert said.links == LINKS.links
    assert ("rate with the job at rest, as others", 9e7, "rank 7 to rank 0") in [
        (fact.what, fact.value, fact.where) for fact in said.evidence
    ]
    # WHEN none of them is slow at rest THEN both stand: it may have been over by then
    assert judged(both, sound_links=sound).links == both.links


def test_phase_of_one_is_not_said_of_another() -> None:
    # GIVEN a link of which the phase is known WHEN another link or a rank takes its place
    stage = Stage(iteration=7, phase="forward", microbatch=2)
    known = msgspec.structs.replace(LINKS, stage=stage)
    for said in (judged(known, slow_links=SLOW_5_TO_6), judged(known, slow_ranks=(SlowRank(2, "compute", 3.0),))):
        assert said.stage == Stage(iteration=7)
    # BUT it stays where the link stands
    assert judged(known, slow_links=(SlowLink(1, 2, 4.0, 25e6, 1e8),)).stage == stage


def test_link_gives_way_to_another_that_is_slow_at_rest() -> None:
    assert [(link.src, link.dst) for link in judged(LINKS, slow_links=SLOW_5_TO_6).links] == [(5, 6)]


def test_link_gives_way_to_the_rank_at_its_end_that_computes_slowly() -> None:
    said = judged(LINKS, slow_ranks=(SlowRank(2, "compute", 3.0),))
    assert (said.cause, said.links, [one.rank for one in said.culprits]) == (Cause.COMPUTE_SLOW, (), [2])
    assert judged(LINKS, slow_ranks=SLOW_4).links == LINKS.links


def test_what_names_nobody_names_what_is_slow_at_rest() -> None:
    rank, link = judged(NOBODY, slow_ranks=SLOW_4), judged(NOBODY, slow_links=SLOW_5_TO_6)
    assert (rank.severity, rank.cause, rank.fault_class) == ("alert", Cause.COMPUTE_SLOW, "S1")
    assert [(one.rank, one.host) for one in rank.culprits] == [(4, "node-4")]
    assert (link.severity, link.cause, link.fault_class) == ("alert", Cause.COMMUNICATION_SLOW, "S2")
    assert judged(NOBODY).cause == Cause.UNKNOWN


def test_links_that_are_well_at_rest_are_said_so() -> None:
    said = {fact.what: fact.value for fact in judged(LINKS, is_healthy=True).evidence}
    assert said["slow links with the job at rest"] == "none"
    left_out = {fact.what for fact in judged(LINKS, is_healthy=True, left_out_links=1).evidence}
    assert "slow links with the job at rest" not in left_out


def test_links_that_are_all_well_at_rest_are_named_no_more() -> None:
    taken_back = judged(LINKS, is_healthy=True, compared_links=6)
    assert (taken_back.cause, taken_back.links, taken_back.fault_class) == (Cause.UNKNOWN, (), None)
    # BUT where some were left out, or none was held against others, that is not known
    assert judged(LINKS, is_healthy=True, compared_links=6, left_out_links=1).links == LINKS.links
    assert judged(LINKS, is_healthy=True).links == LINKS.links
    # AND a rank that is named with them is
    both = msgspec.structs.replace(LINKS, cause=Cause.MIXED_SLOW, culprits=NAMED.culprits)
    assert judged(both, is_healthy=True, compared_links=6).culprits == NAMED.culprits
