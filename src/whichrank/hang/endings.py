"""Question 1: somebody died, or an operation failed. Who was it, as of just before?

The launcher tears the rest down within milliseconds, so what is looked at is frozen in the rings: the operation each
rank failed in or died in, and whether it had failed before it died.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whichrank.hang.case import LISTED, Case
from whichrank.hang.died import died_if_known, which_died
from whichrank.hang.ended_together import all_ended_together, ended_together, killed_at_once
from whichrank.hang.mismatch import mismatch
from whichrank.hang.raised import gave_up_connections, is_of_all, raised_by_all, raised_by_most
from whichrank.hang.reasons import reason_of
from whichrank.locate import waitgraph
from whichrank.locate.deaths import (
    ended_by_parent,
    ended_from_outside,
    ended_mutely,
    failed_by_timeout,
    failed_first,
    gave_up_a_connection,
    in_order,
    own_deaths,
    raised,
    raised_alike,
    raised_by_itself,
    signal_of,
    singled_out,
)
from whichrank.model.clause import Clause, Says, clause
from whichrank.model.ends import Ends
from whichrank.model.evidence import RAISED_ALIKE, Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Reason
from whichrank.model.picture import WAITS, Bools, Ints, Picture

BLOCKED_S = 1.0
"""In an operation for so long before its end, while others were known to wait too: it was blocked."""
MOST_OF_A_FAILURE = 120
"""Characters of the text with which an operation failed."""


def who_ended_it(case: Case, picture: Picture, prior: Finding | None, is_reported: bool) -> Finding | None:
    """The culprit of a job that is dying, None if nobody died of a failure.

    All other ranks are its victims: the job ends for each of them, whoever noticed first. Where most raise the same,
    those that do are no victims of anybody.

    Args:
        case: Answers for this job.
        picture: The job now.
        prior: What the wait-for graph said before the first death or failure, if it had a suspect.
        is_reported: It was worth a word already; otherwise it says something of a timeout at most, and of no end.
    """
    found = _who_ended_it(case, picture, prior, is_reported)
    if found is None or found.kind != "failed" or any(fact.what == RAISED_ALIKE for fact in found.evidence):
        return found
    others = np.setdiff1d(np.flatnonzero(picture.present), sorted(found.names))
    return replace(found, victims=tuple(others.tolist()))


def _who_ended_it(case: Case, picture: Picture, prior: Finding | None, is_reported: bool) -> Finding | None:
    launched_by = case.store.departures.launched_by()
    ends, everything = (
        _but_for_those_ended_by_parent(ends, picture, launched_by)
        for ends in (case.store.departures.open_ends(), case.store.departures.ends())
    )
    own = own_deaths(ends) & ~in_order(ends)
    reported = prior if is_reported else None
    failed = failed_first(ends)
    if not own.any() and not failed.any():
        if reported and reported.names and gave_up_a_connection(ends).any():
            return reported  # they gave up waiting for it
        return raised_by_all(case, picture, ends) or gave_up_connections(case, picture, ends)
    contradicts = mismatch(case, picture)
    if contradicts:  # whoever aborts over it is as likely a victim, so without a deviant nobody is named
        return replace(contradicts, kind="failed")
    alike = raised_alike(ends, own & raised(ends))
    if is_of_all(picture, ends, own, alike) and not (prior and prior.names - set(alike)):
        return raised_by_most(case, picture, ends, alike)
    if all_ended_together(picture, ends, own):
        together = killed_at_once(ends, own)
        if reported and (reported.culprits or reported.candidates) and not _exited_too(ends, together, reported):
            return reported
        if case.store.departures.interruption.leads_to(float(ends.ended_s[together].min())):
            return None
        return ended_together(case, picture, ends, together)
    gave_up = own & _gave_up(picture, ends, prior) if prior and prior.culprits else np.zeros_like(own)
    if gave_up.any() and not reported:
        return which_died(case, picture, ends, np.flatnonzero(own).tolist(), {})
    own &= ~gave_up
    if not own.any() and not failed.any():
        return reported
    orderly, lost = in_order(ends), everything.gone & ~ends.gone
    sinks = sinks_at_the_end(picture, own | lost, orderly)
    named = [r for r in sinks if own[r] or orderly[r] or lost[r]]
    left = np.flatnonzero(picture.present & ~(orderly & ~failed)).tolist()
    if named and not own.any() and 0 < len(left) < len(named) and orderly[named].all():
        why = clause(Says.AWAITED_ENDED_RANKS)
        if prior and prior.candidates:
            return prior
        return _undecided(case, picture, ends, sorted({*left, *named}), why)
    if named:  # also one that died long ago, and that the others did without until now
        first = [r for r in named if own[r]] or [r for r in named if lost[r]] or named
        return died_if_known(case, picture, everything if lost[first].any() else ends, first)
    timed_out = failed_by_timeout(ends).any()
    begin_s, end_s = _second_half(picture, ends) if timed_out else (0.0, 0.0)
    if timed_out and prior and prior.culprits and not own.any() and prior.onset_s <= begin_s:
        return replace(prior, evidence=(*prior.evidence, _timeout_fact(ends)))
    alive = [r for r in sinks if not ends.gone[r] and picture.present[r]]
    waited_too = timed_out and any(case.store.long_ops.within(r, begin_s, end_s) for r in alive)
    if timed_out and len(alive) == 1 and not own.any() and not waited_too:
        return _not_entered(case, picture, ends, alive)
    if own.any():
        return died_if_known(case, picture, ends, np.flatnonzero(own).tolist())
    if ended_from_outside(ends):  # what failed then, failed because its peers were gone
        # The end of one that started others is the end of the job.
        alone = [r for r in np.flatnonzero(singled_out(ends)).tolist() if r not in launched_by]
        why = clause(Says.SIGNAL_OF_LAUNCHERS)
        return _undecided(case, picture, ends, alone, why) if len(alone) == 1 else None
    if reported and reported.culprits and not timed_out:
        return reported
    alike = raised_alike(ends, raised_by_itself(ends))
    if not sinks and len(alike) == int(picture.present.sum()):
        return raised_by_most(case, picture, ends, alike, in_operation=True)
    return _undecided(case, picture, ends, sinks)


def _but_for_those_ended_by_parent(ends: Ends, picture: Picture, launched_by: Ints) -> Ends:
    under_way = picture.ops["rank"][~picture.ops["failed"]]
    ended = ended_by_parent(ends, launched_by, under_way)
    return ends.but_for(ended, ended, ended, np.zeros(len(ended))) if ended.any() else ends


def _exited_too(ends: Ends, together: Bools, reported: Finding) -> bool:
    """Has a rank that was waited for exited like all the others, of itself?"""
    return bool((together & ~ended_mutely(ends))[sorted(reported.names)].any())


def _gave_up(picture: Picture, ends: Ends, prior: Finding) -> Bools:
    """Ranks that waited for another until they ended by themselves: a blocked rank does so only if its wait failed.

    The Python sensor may not see that failure before the rank is gone.
    """
    ops = picture.ops[~picture.ops["failed"]]
    long = ops["rank"][ends.ended_s[ops["rank"]] - ops["issue_s"] > BLOCKED_S]
    waited = np.isin(np.arange(len(ends.gone)), np.intersect1d(long, prior.victims))
    by_itself = (ends.status >= 0) & ~raised(ends) & np.array([not signal_of(int(s)) for s in ends.status])
    return np.asarray(waited & ends.gone & by_itself)


def _second_half(picture: Picture, ends: Ends) -> tuple[float, float]:
    """Of the time that the operation took that failed first: who was waited for then is to blame for its timeout."""
    failed_s = np.where(ends.failure_s > 0, ends.failure_s, np.inf)
    end_s = float(failed_s.min())
    ops = picture.ops[picture.ops["failed"] & (picture.ops["rank"] == failed_s.argmin())]
    issued_s = ops["issue_s"][ops["issue_s"] < end_s]  # the last one: others may have been posted long before
    return (float(issued_s.max(initial=0.0)) + end_s) / 2 if len(issued_s) else end_s, end_s


def sinks_at_the_end(picture: Picture, own: Bools, ordered: Bools) -> list[int]:
    """Sinks of the graph in which an operation that failed is a wait that never ended, and victims still stand."""
    ops = picture.ops[picture.ops["failed"]]
    first = np.array([], np.int64)
    if len(ops):
        order = np.lexsort((ops["issue_s"], ops["rank"]))
        first = order[np.unique(ops["rank"][order], return_index=True)[1]]
    failed = np.zeros(len(first), WAITS)
    for name in ("rank", "comm", "counter", "kind", "peer", "tag", "dtype", "reduce_op", "count", "issue_s"):
        failed[name] = ops[name][first]
    failed["since_s"] = failed["issue_s"]
    comm_at = picture.comm_at[failed["comm"]]
    group_rank = np.array(
        [
            int(np.flatnonzero(picture.member_rank[a : a + picture.comm_size[c]] == r)[:1].sum())
            for a, c, r in zip(comm_at, failed["comm"], failed["rank"], strict=True)
        ],
        np.int64,
    )
    failed["tid"] = picture.member_tid[comm_at + group_rank] if len(failed) else 0
    failed["explicit"] = True
    waits = picture.waits[~np.isin(picture.waits["rank"], failed["rank"])]
    frozen = replace(picture, waits=np.concatenate((waits, failed)), gone=own | ordered)
    graph = waitgraph.build(frozen, 0.0)
    return [int(r) for r in graph.sinks] + [int(r) for r in graph.unseen]


def _first_line(failure: str) -> str:
    """Without the place in torch's own sources, which follows."""
    return failure.partition("\n")[0][:MOST_OF_A_FAILURE]


def _timeout_fact(ends: Ends) -> Evidence:
    rank = int(np.flatnonzero(failed_by_timeout(ends))[0])
    return Evidence(
        what="operation that ran into its timeout", value=_first_line(ends.failure[rank]), where=f"rank {rank}"
    )


def _not_entered(case: Case, picture: Picture, ends: Ends, ranks: list[int]) -> Finding:
    reported = {r: reason_of(case.store, picture, r) for r in ranks}
    return Finding(
        cause=Cause.NOT_ENTERED,
        fault_class="H1",
        reason=next((t.reason for t in reported.values() if t.reason), Reason.USER_CODE),
        culprits=tuple(
            Blame(r, min(t.confidence, 0.9), (clause(Says.TIMED_OUT_WITHOUT_IT), *t.clauses))
            for r, t in reported.items()
        ),
        victims=tuple(np.flatnonzero(ends.failure_s > 0).tolist()),
        onset_s=float(ends.failure_s[ends.failure_s > 0].min()),
        hard=True,
        evidence=(_timeout_fact(ends), *(fact for t in reported.values() for fact in t.evidence)),
        complete=case.complete(picture),
    )


def _undecided(case: Case, picture: Picture, ends: Ends, sinks: list[int], why: Clause | None = None) -> Finding:
    failed = np.flatnonzero(ends.failure_s > 0).tolist()
    first = min(failed, key=lambda r: float(ends.failure_s[r]))
    candidates = sinks or [int(r) for r in np.flatnonzero(~picture.present)]
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        candidates=tuple(Blame(r, 1 / len(candidates), (why or clause(Says.AWAITED),)) for r in candidates[:LISTED]),
        onset_s=float(ends.failure_s[first]),
        hard=True,
        evidence=(Evidence(what="first failure", value=_first_line(ends.failure[first]), where=f"rank {first}"),),
        complete=case.complete(picture),
    )
