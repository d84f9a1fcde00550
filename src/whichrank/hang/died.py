"""Ranks that died of themselves: who they were, or among whom they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whichrank.hang.case import LISTED, Case
from whichrank.hang.raised import another_died_before
from whichrank.hang.reasons import reason_of
from whichrank.locate.deaths import SIGABRT, fact_of_end, how_it_ended, raised, raised_alike, signal_of
from whichrank.locate.messages import Ends as MessageEnds
from whichrank.locate.messages import message_ends, message_of
from whichrank.locate.signatures import with_completed
from whichrank.model.clause import Says, clause
from whichrank.model.ends import Ends
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.kinds import Kind, is_message
from whichrank.model.picture import Ints, Picture
from whichrank.model.signature import has_free_sizes


def died_if_known(case: Case, picture: Picture, ends: Ends, ranks: list[int]) -> Finding:
    """Whoever died by itself, unless it may have been its peer's doing, or it cannot be said who was first."""
    of_these = np.isin(np.arange(len(ends.gone)), ranks)
    same = raised_alike(ends, of_these & raised(ends))
    if len(same) > 1 and not another_died_before(ends, of_these, same):
        return _died(case, picture, ends, same)
    unread = {r: _unread_peers(case, picture, r) if signal_of(int(ends.status[r])) == SIGABRT else [] for r in ranks}
    sure = _first(case, picture, ends, [r for r in ranks if not unread[r]])
    if len(sure) == 1 or (sure and not any(ends.ended_s[sure] > 0)):
        return _died(case, picture, ends, sure)
    partners = {m: r for r in ranks for m in unread[r] if m not in sure}
    return which_died(case, picture, ends, sorted({*(sure or ranks), *partners}), partners)


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
        known: Ints = with_completed(picture, rows, comm, counter, case.store.rounds)["rank"]
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
    if len({case.store.host.get(r) for r in ranks}) > 1:
        return ranks
    return [min(ranks, key=lambda r: float(ends.exception_s[r] or ends.ended_s[r] or np.inf))] if ranks else []


def which_died(
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
    said = {r: how_it_ended(ends, r) for r in ranks if ends.gone[r]}
    said |= {r: clause(Says.ABORTED_WITH_IT, other=other) for r, other in aborted_with.items()}
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        candidates=tuple(Blame(r, 1 / len(said), (said[r],)) for r in sorted(said)),
        onset_s=min(ended, default=picture.now_s),
        hard=True,
        evidence=tuple(
            fact_of_end(how_it_ended(ends, r), r) for r in ranks[:LISTED] if ends.gone[r] and r not in aborted_with
        ),
        complete=case.complete(picture),
    )


def _died(case: Case, picture: Picture, ends: Ends, ranks: list[int]) -> Finding:
    reported = {r: reason_of(case.store, picture, r) for r in ranks}
    later = int((picture.present & (ends.failure_s > 0) & ~np.isin(np.arange(len(ends.gone)), ranks)).sum())
    facts = [fact for t in reported.values() for fact in t.evidence]
    if later:
        facts.append(
            Evidence(what="other ranks that had a failed operation when this was reported", value=later, unit="ranks")
        )
    onset = min((float(ends.ended_s[r]) for r in ranks if ends.ended_s[r] > 0), default=picture.now_s)
    before = [float(ends.exception_s[r]) for r in ranks if ends.exception_s[r] > 0]
    return Finding(
        cause=Cause.PROCESS_EXIT,
        kind="failed",
        reason=next((t.reason for t in reported.values() if t.reason), None),
        culprits=tuple(Blame(r, t.confidence, t.clauses) for r, t in reported.items()),
        onset_s=min([onset, *before]),
        hard=True,
        evidence=tuple(facts),
        complete=case.complete(picture),
    )
