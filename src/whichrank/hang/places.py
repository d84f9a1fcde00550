"""Where in the user's code the two sides of a contradiction stand.

Ranks that issue what cannot meet took two branches of one program. The user needs to know both lines, and they can be
read only while the processes live. So the stacks of the ranks in question, and of one rank that agrees with the others,
are asked for as soon as a contradiction is seen. Of a rank that raised, its exception says the line.
"""

from __future__ import annotations

from dataclasses import replace

from whichrank.hang.acting import acting_stack, place_in, sampled_at_s
from whichrank.model.evidence import AT, RAISED_AT, Evidence
from whichrank.model.exception_text import split_place
from whichrank.model.finding import Finding
from whichrank.model.texts import Texts
from whichrank.store.store import Store

MOST = 8
"""Ranks whose place is reported."""


def sides_of(store: Store, finding: Finding) -> list[int]:
    """The ranks in question and one of those that they contradict; none if the finding is of something else."""
    if finding.fault_class != "H2":
        return []
    asked = [blame.rank for blame in finding.culprits or finding.candidates]
    others = [rank for rank in _in_the_round(store, finding) if rank not in asked]
    if not finding.culprits:
        return (asked + others)[:MOST]
    return [*asked[: MOST - 1], *(others or [r for r in finding.victims if r not in asked])[:1]]


def are_answered(store: Store, ranks: list[int], since_s: float) -> bool:
    """Has it come to light, or been refused, where all of these are?"""
    return all(sampled_at_s(store, rank) >= since_s for rank in ranks if store.ranks.present[rank])


def with_places(store: Store, finding: Finding) -> Finding:
    """The finding, with the lines of code in which its sides are, as far as that is known."""
    facts, sides = [], sides_of(store, finding)
    exceptions = store.departures.ends().exception if sides else Texts(0, {})
    for rank in sides:
        is_of_now = sampled_at_s(store, rank) >= finding.onset_s
        place = place_in(acting_stack(store, rank)) if is_of_now else ""
        raised_at = split_place(exceptions[rank])[1] if store.ranks.present[rank] else ""
        if place:
            facts.append(Evidence(what=AT, value=place, where=f"rank {rank}"))
        elif raised_at:
            facts.append(Evidence(what=RAISED_AT, value=raised_at, where=f"rank {rank}"))
    return replace(finding, evidence=(*finding.evidence, *facts)) if facts else finding


def _in_the_round(store: Store, finding: Finding) -> list[int]:
    """Members that have entered the operation in question."""
    if finding.comm < 0 or not finding.op:
        return []
    at, size = int(store.comms.at[finding.comm]), int(store.comms.size[finding.comm])
    entered = store.comms.member_issued[at : at + size] >= finding.op["counter"]
    return [int(rank) for rank in store.comms.member_rank[at : at + size][entered] if rank >= 0]
