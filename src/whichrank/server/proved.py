"""One verdict of an incident and the validation that was for it: what was measured with the job at rest counts.

- It bears out what the incident says, or does not contradict it: the incident stands, with the numbers beside it.
  A rank that is slow by what it does, data or Python, computes as well as others at rest.
- It shows another rank to be slow, and the one that is named to be sound, of which no other evidence is known: either
  may be the one.
- It shows some of the named links to be slow, and others to be as quick as the rest: the former stand.
- It shows other links to be slow than those named, or the rank at one end of them: these are named.
- It shows all links that are named to be as quick as the others, with enough measured to see what is slow: the name is
  taken back. What made them slow has passed, or was no path.
- The incident names nobody: what is slow at rest is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from whichrank.act.judgement import SlowLink
from whichrank.model.clause import Says, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame
from whichrank.model.incident import Cause, Culprit, FaultClass, Incident, Link, Stage
from whichrank.server.validations_file import Validated

Name: TypeAlias = Callable[[Blame], Culprit]
"""Says of a rank that is blamed where it is."""

AT_REST: Final = "with the job at rest"
SURE: Final = 0.9
"""Confidence in what was slow at rest beside others that were measured with it."""


def with_result(incident: Incident, result: Validated, name: Name) -> Incident:
    """The incident with what was measured, and how long training waited for that.

    Args:
        incident: For which it was.
        result: What came of it.
        name: Says where a rank is.
    """
    evidence = (*incident.evidence, *_facts(incident, result))
    return msgspec.structs.replace(_judged(incident, _Slow.of(result), name), evidence=evidence)


def with_pause(incident: Incident, result: Validated) -> Incident:
    """The incident with how long training waited, and nothing else: what was measured says nothing of who is named."""
    return msgspec.structs.replace(incident, evidence=(*incident.evidence, *_pause(result)))


@dataclass(frozen=True)
class _Slow:
    """What is slow at rest.

    Attributes:
        ranks: By rank, times as long as others for the same computation. What a copy of memory takes names nobody: it
            goes by which pages a process has got.
        links: Sender and receiver.
        sound: Both ends of named links that are not.
        is_nothing: Enough was measured, with all that was named, and nothing is slow.
    """

    ranks: dict[int, float]
    links: list[tuple[int, int]]
    sound: set[frozenset[int]]
    is_nothing: bool

    @classmethod
    def of(cls, result: Validated) -> _Slow:
        return cls(
            {one.rank: one.factor for one in result.slow_ranks if one.what == "compute"},
            [(one.src, one.dst) for one in result.slow_links],
            {frozenset((one.src, one.dst)) for one in result.sound_links},
            result.is_healthy and not result.left_out_links and bool(result.compared_links),
        )


def _judged(incident: Incident, slow: _Slow, name: Name) -> Incident:
    if incident.kind != "slow":
        return incident
    if incident.links and not incident.culprits and slow.is_nothing:
        return _changed(incident, Cause.UNKNOWN)
    if incident.culprits and incident.cause in (Cause.COMPUTE_SLOW, Cause.MIXED_SLOW):
        named = {culprit.rank for culprit in incident.culprits}
        if not slow.ranks or incident.reason is not None or named & slow.ranks.keys():
            return incident
        others = _culprits(slow, name)
        either = tuple(msgspec.structs.replace(one, confidence=0.5) for one in (*incident.culprits, *others))
        return _changed(incident, Cause.UNKNOWN, candidates=either)
    ends = {rank for link in incident.links for rank in (link.src, link.dst)}
    known = {frozenset((link.src, link.dst)) for link in incident.links}
    if incident.links and any(frozenset(link) in known for link in slow.links):
        stand = tuple(link for link in incident.links if frozenset((link.src, link.dst)) not in slow.sound)
        stage = incident.stage if len(stand) == len(incident.links) else _without_phase(incident.stage)
        return msgspec.structs.replace(incident, links=stand, stage=stage)
    is_unnamed = not (incident.culprits or incident.links or incident.candidates)
    if slow.ranks and (is_unnamed or ends & slow.ranks.keys()):
        return _changed(incident, Cause.COMPUTE_SLOW, culprits=_culprits(slow, name))
    if slow.links and (is_unnamed or incident.links):
        links = tuple(Link(src=src, dst=dst, end="path") for src, dst in slow.links)
        return _changed(incident, Cause.COMMUNICATION_SLOW, links=links)
    return incident


def _changed(
    incident: Incident,
    cause: Cause,
    *,
    culprits: tuple[Culprit, ...] = (),
    candidates: tuple[Culprit, ...] = (),
    links: tuple[Link, ...] = (),
) -> Incident:
    named = bool(culprits or links)
    classes: dict[Cause, FaultClass] = {Cause.COMPUTE_SLOW: "S1", Cause.COMMUNICATION_SLOW: "S2"}
    return msgspec.structs.replace(
        incident,
        cause=cause,
        fault_class=classes.get(cause),
        severity="alert" if named else incident.severity,
        stage=_without_phase(incident.stage),
        culprits=culprits,
        candidates=candidates,
        links=links,
    )


def _without_phase(stage: Stage | None) -> Stage | None:
    """The stage without what was said of the phase of others."""
    return msgspec.structs.replace(stage, phase=None, microbatch=None) if stage else None


def _culprits(slow: _Slow, name: Name) -> tuple[Culprit, ...]:
    return tuple(
        name(Blame(rank, SURE, (clause(Says.SLOW_AT_REST, times=round(factor, 1)),)))
        for rank, factor in slow.ranks.items()
    )


def _facts(incident: Incident, result: Validated) -> Iterator[Evidence]:
    if result.problem:
        yield Evidence(what="validation given up", value=result.problem)
    for one in result.slow_ranks:
        what = f"time for the same {'computation' if one.what == 'compute' else 'copy of memory'} {AT_REST}"
        yield Evidence(what=what, value=round(one.factor, 2), unit="times that of others", where=f"rank {one.rank}")
    for link in result.slow_links:
        yield _rate(link, f"rate {AT_REST}")
        yield Evidence(what=f"rate of other links {AT_REST}", value=round(link.usual_bytes_per_s), unit="B/s")
    for link in result.unclear_links:
        yield _rate(link, f"rate {AT_REST}")
        yield Evidence(what=f"rate of the quickest link {AT_REST}", value=round(link.usual_bytes_per_s), unit="B/s")
    for link in result.sound_links if result.slow_links else ():
        yield _rate(link, f"rate {AT_REST}, as others")
    slow = {one.rank for one in result.slow_ranks}
    for culprit in incident.culprits:
        if result.seen_from and culprit.rank not in slow and culprit.rank not in result.problems:
            value = f"no more than {result.seen_from:.1f} times that of others"
            yield Evidence(what=f"time for the same computation {AT_REST}", value=value, where=f"rank {culprit.rank}")
    if result.is_healthy and incident.links and not result.left_out_links:
        yield Evidence(what=f"slow links {AT_REST}", value="none")
    yield from _pause(result)


def _rate(link: SlowLink, what: str) -> Evidence:
    return Evidence(what=what, value=round(link.bytes_per_s), unit="B/s", where=f"rank {link.src} to rank {link.dst}")


def _pause(result: Validated) -> Iterator[Evidence]:
    if result.paused_s:
        yield Evidence(what="training paused to measure", value=round(result.paused_s, 2), unit="s")
