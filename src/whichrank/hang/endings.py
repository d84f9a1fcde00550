"""Question 1: somebody died, or an operation failed. Who was it, as of just before?

The launcher tears the rest down within milliseconds, so what is looked at is frozen in the rings: the operation each
rank failed in or died in, and whether it had failed before it died.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from whichrank.hang.case import Case
from whichrank.hang.mismatch import mismatch
from whichrank.hang.reasons import reason_of
from whichrank.locate import waitgraph
from whichrank.locate.deaths import (
    SIGABRT,
    TOGETHER_S,
    ended_by_parent,
    ended_from_outside,
    ended_mutely,
    failed_by_timeout,
    failed_first,
    gave_up_a_connection,
    how_it_ended,
    in_order,
    killed,
    own_deaths,
    raised,
    raised_alike,
    raised_by_itself,
    signal_of,
    singled_out,
    told_to_end,
)
from whichrank.locate.messages import Ends as MessageEnds
from whichrank.locate.messages import message_ends, message_of
from whichrank.locate.signatures import with_completed
from whichrank.model.ends import Ends
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import IN_OPERATION, RAISED_ALIKE, Cause, Evidence, Reason
from whichrank.model.kinds import Kind, is_message
from whichrank.model.picture import WAITS, Bools, Ints, Picture
from whichrank.model.signature import has_free_sizes

BLOCKED_S = 1.0
"""In an operation for so long before its end, while others were known to wait too: it was blocked."""
MOST_OF_A_FAILURE = 120
"""Characters of the text with which an operation failed."""
MOST_TEXTS = 4
"""Of exceptions that are alike but for their text."""
_NUMBER = re.compile(r"(0x[0-9a-fA-F]+|\d+)")
AT_ONCE_S = 0.1
"""So close that a rank cannot have been ended because another was."""


def who_ended_it(case: Case, picture: Picture, prior: Finding | None, is_told: bool) -> Finding | None:
    """The culprit of a job that is dying, None if nobody died of a failure.

    All other ranks are its victims: the job ends for each of them, whoever noticed first. Where most raise the same,
    those that do are no victims of anybody.

    Args:
        case: Answers for this job.
        picture: The job now.
        prior: What the wait-for graph said before the first death or failure, if it had a suspect.
        is_told: It was worth a word already; otherwise it says something of a timeout at most, and of no end.
    """
    found = _who_ended_it(case, picture, prior, is_told)
    if found is None or found.kind != "failed" or any(fact.what == RAISED_ALIKE for fact in found.evidence):
        return found
    others = np.setdiff1d(np.flatnonzero(picture.present), sorted(found.names))
    return replace(found, victims=tuple(others.tolist()))


def _who_ended_it(case: Case, picture: Picture, prior: Finding | None, is_told: bool) -> Finding | None:
    launched_by = case.state.launched_by()
    ends, everything = (
        _but_for_those_ended_by_parent(ends, picture, launched_by)
        for ends in (case.state.open_ends(), case.state.ends())
    )
    own = own_deaths(ends) & ~in_order(ends)
    told = prior if is_told else None
    failed = failed_first(ends)
    if not own.any() and not failed.any():
        if told and told.names and gave_up_a_connection(ends).any():
            return told  # they gave up waiting for it
        return _raised_by_all(case, picture, ends) or _gave_up_connections(case, picture, ends)
    contradicts = mismatch(case, picture)
    if contradicts:  # whoever aborts over it is as likely a victim, so without a deviant nobody is named
        return replace(contradicts, kind="failed")
    alike = raised_alike(ends, own & raised(ends))
    if _is_of_all(picture, ends, own, alike) and not (prior and prior.names - set(alike)):
        return _raised_by_most(case, picture, ends, alike)
    if _all_ended_together(picture, ends, own):
        together = _killed_at_once(ends, own)
        if told and (told.culprits or told.candidates) and not _exited_too(ends, together, told):
            return told
        if case.state.interruption.leads_to(float(ends.ended_s[together].min())):
            return None
        return _ended_together(case, picture, ends, together)
    gave_up = own & _gave_up(picture, ends, prior) if prior and prior.culprits else np.zeros_like(own)
    if gave_up.any() and not told:
        return _which_died(case, picture, ends, np.flatnonzero(own).tolist(), {})
    own &= ~gave_up
    if not own.any() and not failed.any():
        return told
    orderly, lost = in_order(ends), everything.gone & ~ends.gone
    sinks = _sinks(picture, own | lost, orderly)
    named = [r for r in sinks if own[r] or orderly[r] or lost[r]]
    left = np.flatnonzero(picture.present & ~(orderly & ~failed)).tolist()
    if named and not own.any() and 0 < len(left) < len(named) and orderly[named].all():
        why = "it waited for ranks that had ended in order, or had ended so while it waited"
        if prior and prior.candidates:
            return prior
        return _undecided(case, picture, ends, sorted({*left, *named}), why)
    if named:  # also one that died long ago, and that the others did without until now
        first = [r for r in named if own[r]] or [r for r in named if lost[r]] or named
        return _died_if_known(case, picture, everything if lost[first].any() else ends, first)
    timed_out = failed_by_timeout(ends).any()
    begin_s, end_s = _second_half(picture, ends) if timed_out else (0.0, 0.0)
    if timed_out and prior and prior.culprits and not own.any() and prior.onset_s <= begin_s:
        return replace(prior, evidence=(*prior.evidence, _timeout_fact(ends)))
    alive = [r for r in sinks if not ends.gone[r] and picture.present[r]]
    waited_too = timed_out and any(case.state.long_ops.within(r, begin_s, end_s) for r in alive)
    if timed_out and len(alive) == 1 and not own.any() and not waited_too:
        return _not_entered(case, picture, ends, alive)
    if own.any():
        return _died_if_known(case, picture, ends, np.flatnonzero(own).tolist())
    if ended_from_outside(ends):  # what failed then, failed because its peers were gone
        # The end of one that started others is the end of the job.
        alone = [r for r in np.flatnonzero(singled_out(ends)).tolist() if r not in launched_by]
        why = "a signal that launchers use ended it before all others of its node"
        return _undecided(case, picture, ends, alone, why) if len(alone) == 1 else None
    if told and told.culprits and not timed_out:
        return told
    alike = raised_alike(ends, raised_by_itself(ends))
    if not sinks and len(alike) == int(picture.present.sum()):
        return _raised_by_most(case, picture, ends, alike, in_operation=True)
    return _undecided(case, picture, ends, sinks)


def _but_for_those_ended_by_parent(ends: Ends, picture: Picture, launched_by: Ints) -> Ends:
    under_way = picture.ops["rank"][~picture.ops["failed"]]
    ended = ended_by_parent(ends, launched_by, under_way)
    return ends.but_for(ended, ended, ended, np.zeros(len(ended))) if ended.any() else ends


def _exited_too(ends: Ends, together: Bools, told: Finding) -> bool:
    """Has a rank that was waited for exited like all the others, of itself?"""
    return bool((together & ~ended_mutely(ends))[sorted(told.names)].any())


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


def _sinks(picture: Picture, own: Bools, ordered: Bools) -> list[int]:
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


def _all_ended_together(picture: Picture, ends: Ends, own: Bools) -> bool:
    """Most ranks were ended from outside within a second: somebody ended the job, no rank did."""
    silent = _killed_at_once(ends, own)
    times = ends.ended_s[silent]
    return bool(silent.sum() > 1 and 2 * silent.sum() > picture.present.sum() and np.ptp(times) <= TOGETHER_S)


def _killed_at_once(ends: Ends, own: Bools) -> Bools:
    """Ranks that ended on their own account and silently, and those that were killed with them.

    A rank may see its peer's end, as a failure, in the moment before it is ended itself.
    """
    mute = ends.gone & np.array([not text for text in ends.exception])
    with_it = killed(ends) & (np.abs(ends.ended_s - ends.ended_s[own & mute].min(initial=np.inf)) <= AT_ONCE_S)
    return np.asarray(mute & (own | with_it))


def _ended_together(case: Case, picture: Picture, ends: Ends, own: Bools) -> Finding:
    ranks = np.flatnonzero(own).tolist()
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        onset_s=float(ends.ended_s[own].min()),
        hard=True,
        evidence=(
            Evidence(what="ended within a second of each other", value=len(ranks), unit="ranks"),
            Evidence(what="how", value=how_it_ended(ends, ranks[0]), where=f"rank {ranks[0]}"),
        ),
        complete=case.complete(picture),
        next=("see what ended the whole job: the launcher's log, the scheduler, dmesg",),
    )


def _died_if_known(case: Case, picture: Picture, ends: Ends, ranks: list[int]) -> Finding:
    """Whoever died by itself, unless it may have been its peer's doing, or it cannot be said who was first."""
    of_these = np.isin(np.arange(len(ends.gone)), ranks)
    same = raised_alike(ends, of_these & raised(ends))
    if len(same) > 1 and not _another_died_before(ends, of_these, same):
        return _died(case, picture, ends, same)
    unread = {r: _unread_peers(case, picture, r) if signal_of(int(ends.status[r])) == SIGABRT else [] for r in ranks}
    sure = _first(case, picture, ends, [r for r in ranks if not unread[r]])
    if len(sure) == 1 or (sure and not any(ends.ended_s[sure] > 0)):
        return _died(case, picture, ends, sure)
    partners = {m: r for r in ranks for m in unread[r] if m not in sure}
    return _which_died(case, picture, ends, sorted({*(sure or ranks), *partners}), partners)


def _raised_by_all(case: Case, picture: Picture, ends: Ends) -> Finding | None:
    """All ranks report the loss of a peer at one place, and none is lost: it is what the program asked for there."""
    alike = raised_alike(ends, raised_by_itself(ends))
    late = np.flatnonzero(picture.present & ~np.isin(np.arange(len(ends.gone)), alike)).tolist()
    nobody = np.zeros(len(ends.gone), np.bool_)
    if any(_has_met_nobody(case, ends, rank) for rank in late) or not _is_of_all(picture, ends, nobody, alike):
        return None
    return _raised_by_most(case, picture, ends, alike)


def _has_met_nobody(case: Case, ends: Ends, rank: int) -> bool:
    """Had this rank raised nothing and made no communicator? Then those that did may have waited for it."""
    return not ends.exception[rank] and not case.state.ranks.rows["init_ns"][rank]


def _gave_up_connections(case: Case, picture: Picture, ends: Ends) -> Finding | None:
    """Some ranks report the loss of a peer, in no operation, and none is lost: a store that was not reached."""
    gave_up = np.flatnonzero(gave_up_a_connection(ends)).tolist()
    if not gave_up or ended_from_outside(ends):
        return None
    first = min(gave_up, key=lambda r: float(ends.exception_s[r]))
    before = np.flatnonzero(in_order(ends) & ends.gone & (ends.ended_s <= ends.exception_s[first])).tolist()
    late = [r for r in np.flatnonzero(picture.present).tolist() if _has_met_nobody(case, ends, r)]
    said = dict.fromkeys(late, "it had made no communicator when another rank gave up a connection")
    said |= dict.fromkeys(gave_up, "it gave up a connection, and it is not known whose fault that was")
    said |= dict.fromkeys(before, "it had ended in order before another rank gave up a connection")
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        reason=Reason.EXCEPTION,
        candidates=tuple(Blame(r, 1 / len(said), why) for r, why in list(said.items())[:16]),
        onset_s=float(ends.exception_s[first]),
        hard=True,
        evidence=(Evidence(what="exception", value=ends.exception[first], where=f"rank {first}"),),
        complete=case.complete(picture),
    )


def _is_of_all(picture: Picture, ends: Ends, own: Bools, alike: list[int]) -> bool:
    """Is an exception that several ranks raised alike the program's, so that no rank differs?

    It is if most ranks raised it, or if the others were ended before they could come to that place; not if another rank
    died of something else before.
    """
    if len(alike) < 2:
        return False
    if _another_died_before(ends, own, alike):
        return False
    is_alike = np.isin(np.arange(len(ends.gone)), alike)
    if 2 * len(alike) > int(picture.present.sum()):
        return True
    cut_short = told_to_end(ends) & (ends.failure_s == 0) & ~_went_further(picture, alike)
    return bool(cut_short[picture.present & ~is_alike].all())


def _another_died_before(ends: Ends, own: Bools, alike: list[int]) -> bool:
    """Has another rank died on its own account before the first of these raised?"""
    others = own & ~np.isin(np.arange(len(own)), alike)
    at_s = np.where(ends.exception_s > 0, ends.exception_s, ends.ended_s)
    return bool((at_s[others] <= ends.exception_s[alike].min()).any())


def _went_further(picture: Picture, ranks: list[int]) -> Bools:
    """Ranks that are in an operation, or have failed in one, that none of these has issued."""
    comm = np.repeat(np.arange(len(picture.comm_size)), picture.comm_size)
    theirs = np.isin(picture.member_rank, ranks)
    least = np.full(len(picture.comm_size), np.iinfo(np.int64).max)
    np.minimum.at(least, comm[theirs], picture.member_issued[theirs])
    ops = picture.ops
    further = is_message(ops["kind"]) | (least[ops["comm"]] < ops["counter"].astype(np.int64))
    found = np.zeros(len(picture.present), np.bool_)
    found[ops["rank"][further]] = True
    return found


def _raised_by_most(
    case: Case, picture: Picture, ends: Ends, ranks: list[int], *, in_operation: bool = False
) -> Finding:
    """The same exception in most ranks: it is the program's, or its data's, and no rank's.

    An operation may raise in all members because of one of them, so it is not said whose doing that is.
    """
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        reason=Reason.EXCEPTION,
        victims=tuple(np.setdiff1d(np.flatnonzero(picture.present), ranks).tolist()),
        onset_s=float(ends.exception_s[ranks].min()),
        hard=True,
        evidence=(
            Evidence(
                what=RAISED_ALIKE,
                value=len(ranks),
                unit="ranks",
                where=f"of {int(picture.present.sum())}{IN_OPERATION * in_operation}",
            ),
            *_texts_of(ends, ranks),
        ),
        complete=case.complete(picture),
    )


def _texts_of(ends: Ends, ranks: list[int]) -> list[Evidence]:
    """What they raised, with "…" for numbers in which they differ; a text of each sort if they differ in more."""
    texts = {rank: _NUMBER.split(ends.exception[rank]) for rank in ranks}
    sorts: dict[tuple[str, ...], list[int]] = {}
    for rank, pieces in texts.items():
        sorts.setdefault(tuple(pieces[::2]), []).append(rank)  # numbers stand at odd places
    facts = []
    for those in list(sorts.values())[:MOST_TEXTS]:
        places = zip(*(texts[rank] for rank in those), strict=True)
        common = "".join(piece[0] if len(set(piece)) == 1 else "…" for piece in places)
        where = (
            f"the same on {len(those)} ranks"
            if common == ends.exception[those[0]]
            else f"{len(those)} ranks, each with its own numbers"
        )
        facts.append(Evidence(what="exception", value=common, where=where))
    return facts


def _unread_peers(case: Case, picture: Picture, rank: int) -> list[int]:
    """Members whose part in an operation of this rank is not known: a peer's larger shape aborts it too."""
    found: set[int] = set()
    ops, messages = picture.ops, message_ends(picture)
    for op in ops[ops["rank"] == rank]:
        if is_message(op["kind"]):
            found |= _unread_partner(picture, op, messages)
            continue
        members = np.arange(picture.comm_size[op["comm"]]) + picture.comm_at[op["comm"]]
        ranks = picture.member_rank[members]
        outside = (picture.member_issued[members] < op["counter"]) & (picture.read_after_s[ranks] > op["issue_s"])
        comparable = np.isin(ranks, _comparable(case, picture, op))
        found |= {int(m) for m in ranks[~outside & ~comparable] if m != rank}
    return sorted(found - {-1})


def _comparable(case: Case, picture: Picture, op: np.void) -> Ints:
    """Members of whose part in this round enough is known for a contradiction to show, if there were one."""
    comm, counter = int(op["comm"]), int(op["counter"])
    rows = picture.ops[(picture.ops["comm"] == comm) & (picture.ops["counter"] == counter)]
    if not has_free_sizes(rows[rows["rank"] == op["rank"]])[0]:
        known: Ints = with_completed(picture, rows, comm, counter, case.rounds)["rank"]
        return known
    if op["kind"] != Kind.ALL_TO_ALL:
        return np.zeros(0, np.int64)
    sizes = picture.splits[(picture.splits["comm"] == comm) & (picture.splits["counter"] == counter)]
    is_whole = (sizes["splits"] == 0) | (sizes["splits"] >= picture.comm_size[comm])
    known = sizes["rank"][is_whole]
    return known if op["rank"] in known else known[:0]


def _unread_partner(picture: Picture, op: np.void, ends: MessageEnds) -> set[int]:
    """The other end of a send or receive, if it has taken part and it is not known with how much."""
    message = message_of(picture, op) if op["peer"] >= 0 else None
    if message is None or len(ends.get(message, {})) > 1:
        return set()  # both are known, and do not contradict each other
    partner = message.receiver if op["kind"] == Kind.SEND else message.sender
    if partner < 0:
        return set()
    pairs = picture.pairs
    first = int(picture.comm_at[message.comm])
    members = picture.member_rank[first : first + int(picture.comm_size[message.comm])]
    toward = np.flatnonzero(members == op["rank"])[:1].sum()
    at = (pairs["comm"] == message.comm) & (pairs["rank"] == partner) & (pairs["tag"] == message.tag)
    at &= (pairs["kind"] != op["kind"]) & (pairs["peer"] == toward)
    reached = int(pairs["issued"][at].max(initial=0)) >= message.number
    return {partner} if reached or not picture.present[partner] else set()


def _first(case: Case, picture: Picture, ends: Ends, ranks: list[int]) -> list[int]:
    """Of several: those that died outside any wait, else the first to raise or end, if one clock saw them all."""
    waiting = set(picture.waits["rank"].tolist())
    ranks = [r for r in ranks if r not in waiting] or ranks
    if len({case.state.host.get(r) for r in ranks}) > 1:
        return ranks
    return [min(ranks, key=lambda r: float(ends.exception_s[r] or ends.ended_s[r] or np.inf))] if ranks else []


def _which_died(
    case: Case,
    picture: Picture,
    ends: Ends,
    ranks: list[int],
    aborted_with: Mapping[int, int],
) -> Finding:
    """One of these, and it is not known which.

    Args:
        case: Answers for this job.
        picture: The job now.
        ends: How ranks ended.
        ranks: Candidates.
        aborted_with: Of a candidate that did not die of itself, who aborted in an operation with it.
    """
    ended = [float(t) for t in ends.ended_s[ranks] if t > 0]
    said = {r: f"its process {how_it_ended(ends, r)}" for r in ranks if ends.gone[r]}
    said |= {
        r: f"rank {other} aborted in an operation with it, and what it issued there is not known"
        for r, other in aborted_with.items()
    }
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        candidates=tuple(Blame(r, 1 / len(said), why) for r, why in sorted(said.items())),
        onset_s=min(ended, default=picture.now_s),
        hard=True,
        evidence=tuple(
            Evidence(what="process", value=how_it_ended(ends, r), where=f"rank {r}")
            for r in ranks[:16]
            if ends.gone[r] and r not in aborted_with
        ),
        complete=case.complete(picture),
    )


def _died(case: Case, picture: Picture, ends: Ends, ranks: list[int]) -> Finding:
    told = {r: reason_of(case.state, picture, r) for r in ranks}
    later = int((picture.present & (ends.failure_s > 0) & ~np.isin(np.arange(len(ends.gone)), ranks)).sum())
    facts = [fact for t in told.values() for fact in t.evidence]
    if later:
        facts.append(
            Evidence(what="other ranks that had a failed operation when this was reported", value=later, unit="ranks")
        )
    onset = min((float(ends.ended_s[r]) for r in ranks if ends.ended_s[r] > 0), default=picture.now_s)
    before = [float(ends.exception_s[r]) for r in ranks if ends.exception_s[r] > 0]
    return Finding(
        cause=Cause.PROCESS_EXIT,
        kind="failed",
        reason=next((t.reason for t in told.values() if t.reason), None),
        culprits=tuple(Blame(r, t.confidence, t.words) for r, t in told.items()),
        onset_s=min([onset, *before]),
        hard=True,
        evidence=tuple(facts),
        complete=case.complete(picture),
    )


def _first_line(failure: str) -> str:
    """Without the place in torch's own sources, which follows."""
    return failure.partition("\n")[0][:MOST_OF_A_FAILURE]


def _timeout_fact(ends: Ends) -> Evidence:
    rank = int(np.flatnonzero(failed_by_timeout(ends))[0])
    return Evidence(
        what="operation that ran into its timeout", value=_first_line(ends.failure[rank]), where=f"rank {rank}"
    )


def _not_entered(case: Case, picture: Picture, ends: Ends, ranks: list[int]) -> Finding:
    told = {r: reason_of(case.state, picture, r) for r in ranks}
    return Finding(
        cause=Cause.NOT_ENTERED,
        fault_class="H1",
        reason=next((t.reason for t in told.values() if t.reason), Reason.USER_CODE),
        culprits=tuple(
            Blame(r, min(t.confidence, 0.9), f"it had not entered the operation that timed out, and {t.words}")
            for r, t in told.items()
        ),
        victims=tuple(np.flatnonzero(ends.failure_s > 0).tolist()),
        onset_s=float(ends.failure_s[ends.failure_s > 0].min()),
        hard=True,
        evidence=(_timeout_fact(ends), *(fact for t in told.values() for fact in t.evidence)),
        complete=case.complete(picture),
    )


def _undecided(
    case: Case, picture: Picture, ends: Ends, sinks: list[int], why: str = "others waited for it"
) -> Finding:
    failed = np.flatnonzero(ends.failure_s > 0).tolist()
    first = min(failed, key=lambda r: float(ends.failure_s[r]))
    candidates = sinks or [int(r) for r in np.flatnonzero(~picture.present)]
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        candidates=tuple(Blame(r, 1 / len(candidates), why) for r in candidates[:16]),
        onset_s=float(ends.failure_s[first]),
        hard=True,
        evidence=(Evidence(what="first failure", value=_first_line(ends.failure[first]), where=f"rank {first}"),),
        complete=case.complete(picture),
    )
