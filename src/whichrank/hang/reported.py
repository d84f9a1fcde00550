"""What libraries, drivers and kernels say themselves of ranks in a log, beside what operations show.

A library that lists who is absent has waited for each of them, so those are named. An error of a device explains a rank
that others wait for; where nobody else is named, its rank is. That a thread stands elsewhere than most, or that a
network request is late, makes candidates only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whichrank.hang.case import LISTED, MOST_CANDIDATES, Case
from whichrank.model.clause import Clause, Says, clause
from whichrank.model.evidence import AT, Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Reason
from whichrank.model.picture import Picture, Recorded
from whichrank.model.reports import Report, Told

SURE = 0.95
"""Confidence in what a library or a driver says itself."""
LEAST_LOOKS = 2
"""Of RAS, in which a rank must not answer for it to be named."""
_HELD_UP = frozenset({Says.NOTHING_IN_FLIGHT, Says.NOTHING_AFTER})
"""What an error of the device contradicts: that the host was held up."""


def reported_by_others(case: Case, picture: Picture, recorded: Recorded, found: Finding | None) -> Finding | None:
    """What is found with what the reports of a recording say.

    Args:
        case: For words.
        picture: The job.
        recorded: Has the reports.
        found: What operations show.
    """
    by_kind = {told: [one for one in recorded.reports if one.told is told] for told in Told}
    if (found is None or not found.names) and (absent := by_kind[Told.ABSENT]):
        found = _absent(case, picture, absent[-1], found)
    if (found is None or not found.names) and (silent := by_kind[Told.NO_ANSWER]):
        found = _no_answer(case, picture, silent[-1])
    for one in by_kind[Told.DEVICE_ERROR]:
        found = _of_device(case, picture, one, found)
    for one in by_kind[Told.NODE_ERROR]:
        found = _of_node(case, picture, one, found)
    slow = by_kind[Told.REQUESTS_SLOW] if found is not None else []
    late = [*by_kind[Told.REQUESTS_LATE], *slow]
    if found is None or not (found.names or found.candidates):
        for one in (*by_kind[Told.ELSEWHERE], *late)[:1]:
            found = _candidates(case, picture, one, found)
    elif not found.names and late:  # of the others only their silence is known
        before = [blame for blame in found.candidates if blame.rank not in late[0].ranks]
        found = _candidates(case, picture, late[0], found)
        both = (*found.candidates, *before)[:MOST_CANDIDATES]
        found = replace(found, candidates=tuple(replace(blame, confidence=1 / len(both)) for blame in both))
    return found


def _absent(case: Case, picture: Picture, one: Report, found: Finding | None) -> Finding:
    why = clause(Says.REPORTED_ABSENT, by=one.text)
    waiting = tuple(sorted({*one.waiting, *(found.victims if found else ())} - set(one.ranks)))
    return Finding(
        cause=Cause.NOT_ENTERED,
        fault_class="H1",
        culprits=tuple(Blame(rank, SURE, (why,)) for rank in one.ranks),
        op={"kind": one.op, "counter": one.seq, "dtype": 255, "count": 0, "reduce_op": 255, "peer": -1}
        if one.op
        else None,
        victims=waiting,
        onset_s=picture.now_s,
        hard=True,
        evidence=(Evidence(what=f"reported as absent by {one.text}", value=len(one.ranks), unit="ranks"),),
        complete=case.complete(picture),
    )


def _no_answer(case: Case, picture: Picture, one: Report) -> Finding:
    """One look may come at a bad moment; who does not answer in two has stopped, ended, or cannot be reached."""
    is_sure = one.seq >= LEAST_LOOKS
    why = clause(Says.NO_ANSWER_TO_RAS, looks=one.seq)
    blames = tuple(Blame(rank, SURE if is_sure else 1 / len(one.ranks), (why,)) for rank in one.ranks[:MOST_CANDIDATES])
    return Finding(
        cause=Cause.NOT_ENTERED if is_sure else Cause.UNKNOWN,
        fault_class="H1" if is_sure else None,
        culprits=blames if is_sure else (),
        candidates=() if is_sure else blames,
        victims=one.waiting,
        onset_s=picture.now_s,
        hard=is_sure,
        evidence=(Evidence(what="no answer to NCCL's RAS", value=len(one.ranks), unit="ranks"),),
        complete=case.complete(picture),
    )


def _of_device(case: Case, picture: Picture, one: Report, found: Finding | None) -> Finding:
    """An error of a device beside what is found: the rank in question is named with it, or becomes a candidate."""
    said = clause(Says.DEVICE_REPORTS, error=one.text)
    fact = Evidence(what="error of a device", value=one.text, where=_where(one.ranks))
    if found is None:
        return _device_alone(case, picture, one, said, fact)
    blames = found.culprits or found.candidates
    mine = [blame for blame in blames if blame.rank in one.ranks]
    if mine and (found.culprits or len(one.ranks) == 1):
        with_error = tuple(replace(blame, why=_with(blame.why, said)) for blame in mine)
        others = tuple(blame for blame in found.culprits if blame.rank not in one.ranks)
        cause = found.cause if found.culprits else _cause(picture, one.ranks)
        culprits = (*(replace(blame, confidence=SURE) for blame in with_error), *others)
        return replace(
            found, cause=cause, fault_class=found.fault_class or "H1", reason=Reason.DEVICE_ERROR, culprits=culprits,
            candidates=found.candidates if found.culprits else (), evidence=(*_but_for_hosts(found.evidence), fact),
            victims=tuple(r for r in found.victims if r not in {b.rank for b in culprits}), next=(),
        )  # fmt: skip
    if found.names:
        return replace(found, evidence=(*found.evidence, fact))
    if len(one.ranks) == 1:
        named = _device_alone(case, picture, one, said, fact)
        victims = tuple(rank for rank in found.victims if rank not in one.ranks)
        return replace(named, comm=found.comm, op=found.op, victims=victims, onset_s=found.onset_s)
    return replace(_device_alone(case, picture, one, said, fact), comm=found.comm, op=found.op, victims=found.victims)


def _device_alone(case: Case, picture: Picture, one: Report, said: Clause, fact: Evidence) -> Finding:
    is_one = len(one.ranks) == 1
    blames = tuple(Blame(rank, SURE if is_one else 1 / len(one.ranks), (said,)) for rank in one.ranks[:MOST_CANDIDATES])
    return Finding(
        cause=_cause(picture, one.ranks) if is_one else Cause.UNKNOWN,
        kind="failed" if is_one and picture.world_size > one.ranks[0] and picture.gone[one.ranks[0]] else "hang",
        fault_class="H3" if is_one else None,
        reason=Reason.DEVICE_ERROR,
        culprits=blames if is_one else (),
        candidates=() if is_one else blames,
        onset_s=picture.now_s,
        hard=True,
        evidence=(fact,),
        complete=case.complete(picture),
    )


def _of_node(case: Case, picture: Picture, one: Report, found: Finding | None) -> Finding:
    """An error of what the ranks of a node share: each of them may be the one, beside those that are in question."""
    said = clause(Says.NODE_REPORTS, error=one.text)
    fact = Evidence(what="error of a node", value=one.text, where=_where(one.ranks))
    if found is not None and found.names:
        culprits = tuple(
            replace(blame, why=(*blame.why, said)) if blame.rank in one.ranks else blame for blame in found.culprits
        )
        return replace(found, culprits=culprits, evidence=(*found.evidence, fact))
    before = found.candidates if found else ()
    here = [replace(blame, why=(*blame.why, said)) for blame in before if blame.rank in one.ranks]
    others = [blame for blame in before if blame.rank not in one.ranks]
    known = {blame.rank for blame in before}
    blames = [*here, *others, *(Blame(rank, 0.0, (said,)) for rank in one.ranks if rank not in known)]
    share = 1 / len(blames)
    found = found or Finding(cause=Cause.UNKNOWN, onset_s=picture.now_s, hard=True, complete=case.complete(picture))
    return replace(
        found, candidates=tuple(replace(blame, confidence=share) for blame in blames[:MOST_CANDIDATES]),
        evidence=(*found.evidence, fact),
    )  # fmt: skip


def _cause(picture: Picture, ranks: Sequence[int]) -> Cause:
    """Its process has ended, or it lives and only its device does nothing."""
    ended = [rank for rank in ranks if rank < picture.world_size and picture.gone[rank]]
    return Cause.PROCESS_EXIT if ended else Cause.DEVICE


def _with(why: tuple[Clause, ...], said: Clause) -> tuple[Clause, ...]:
    return (*(one for one in why if one.says not in _HELD_UP), said)


def _but_for_hosts(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    return tuple(fact for fact in evidence if fact.what != "operations in flight")


def _candidates(case: Case, picture: Picture, one: Report, found: Finding | None) -> Finding:
    share = 1 / len(one.ranks) if one.ranks else 0.0
    if one.told is Told.ELSEWHERE:
        why = clause(Says.STANDS_ELSEWHERE, place=one.text, usual=one.usual, others=len(one.waiting))
        facts = [Evidence(what=AT, value=one.text, where=f"rank {rank}") for rank in one.ranks[:LISTED]]
        facts += [Evidence(what=AT, value=one.usual, where=f"rank {rank}") for rank in one.waiting[:LISTED]]
    else:
        is_late = one.told is Told.REQUESTS_LATE
        why = clause(Says.REQUESTS_LATE if is_late else Says.REQUESTS_SLOW, text=one.text)
        what = "network requests without a completion" if is_late else "slow network requests"
        facts = [Evidence(what=what, value=one.text)]
    blames = tuple(Blame(rank, share, (why,)) for rank in one.ranks[:MOST_CANDIDATES])
    if found is not None:
        return replace(found, candidates=blames, evidence=(*found.evidence, *facts))
    return Finding(
        cause=Cause.UNKNOWN,
        candidates=blames,
        victims=tuple(rank for rank in one.waiting if rank not in one.ranks),
        onset_s=picture.now_s,
        evidence=tuple(facts),
        complete=case.complete(picture),
    )


def _where(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:LISTED]))}"
