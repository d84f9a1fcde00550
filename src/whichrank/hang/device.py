"""Ranks on which operations do not end that are over for their peers (DESIGN 5.2, complete here and not there).

They have done their part, or the later rounds of their peers could not have ended. So neither the network nor anybody
else holds them up: their device, its driver, or the process that snapshots after it. But who was recorded later than
the others has seen more end too. So they must be few, and not one alone must have seen it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whichrank.hang.case import LISTED, Case
from whichrank.hang.reasons import FEW, MOST, held_up_by
from whichrank.hang.sinks import apart, blame_of_sink
from whichrank.hang.unread import unread_facts
from whichrank.locate.waitgraph import WaitGraph, waiters_of
from whichrank.model.clause import Says, clause
from whichrank.model.evidence import Evidence, waiting_for
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.kinds import is_collective
from whichrank.model.picture import Ints, Picture

SURE = 0.9
"""Confidence in a rank that has not seen what its peers have completed."""
SEVERAL = 2
"""Members of a communicator that must have seen a later round end, if it has so many others."""


def overtaken(case: Case, picture: Picture, graph: WaitGraph) -> Finding:
    """The ranks that do not see the end of what others have completed, with those that others wait for besides.

    Args:
        case: For words.
        picture: The job.
        graph: Who waits for whom, and somebody is overtaken.
    """
    waits = picture.waits[graph.overtaken]
    ranks = [int(r) for r in np.unique(waits["rank"])]
    blames, evidence = [], []
    for rank in ranks:
        wait = waits[waits["rank"] == rank][0]
        behind = _ended_elsewhere(picture, wait)
        why = clause(Says.NOT_COMPLETED, op=case.op_on(wait), later=max(behind - 1, 0))
        blames.append(Blame(rank, SURE, (why,)))
        evidence += [
            Evidence(what="operations complete on its peers and not on it", value=behind, where=f"rank {rank}"),
            waiting_for(rank, len(waiters_of(picture, graph, rank))),
        ]
    evidence += unread_facts(graph)
    others = [int(r) for r in graph.sinks if int(r) not in ranks]
    others = others if not apart(case, picture, graph) else []
    for rank in held_up_by(case.store, others, -np.inf, len(graph.waiting), len(graph.unseen)) if others else []:
        blames.append(blame_of_sink(case, picture, graph, rank))
    first = waits[int(np.argmin(waits["since_s"]))]
    named = {blame.rank for blame in blames}
    others_seen = int((picture.fresh & picture.present).sum()) - len(ranks)
    is_sure = (
        len(ranks) <= MOST and (FEW - 1) * len(ranks) <= others_seen and all(_have_seen(picture, w) for w in waits)
    )
    if not is_sure:
        blames = [replace(blame, confidence=1 / len(blames)) for blame in blames][:LISTED]
    return Finding(
        cause=Cause.DEVICE if is_sure else Cause.UNKNOWN,
        fault_class="H3" if is_sure else None,
        culprits=tuple(blames) if is_sure else (),
        candidates=() if is_sure else tuple(blames),
        comm=int(first["comm"]),
        op=case.op_of(first),
        victims=tuple(int(r) for r in graph.waiting if int(r) not in named),
        waited_for=frozenset(graph.sinks.tolist()),
        onset_s=float(first["since_s"]),
        evidence=tuple(evidence),
        complete=case.complete(picture),
    )


def done_elsewhere(case: Case, picture: Picture) -> Finding | None:
    """Few ranks wait in a round that all the others have completed: candidates, since one may end on some members only.

    Only of recordings that count: no snapshot can be later than another one there by more than a moment.
    """
    for comm in np.unique(picture.waits["comm"][is_collective(picture.waits["kind"])]).tolist():
        here = slice(int(picture.comm_at[comm]), int(picture.comm_at[comm] + picture.comm_size[comm]))
        member, done = picture.member_rank[here], picture.member_done[here]
        blocked = (picture.member_issued[here] > done) & np.isin(member, picture.waits["rank"])
        if not (picture.member_seen[here].all() and blocked.any()):
            continue
        least = int(done[blocked].min()) + 1
        late = member[blocked & (done < least)].tolist()
        others = int((done >= least).sum())
        ops = picture.ops
        row = ops[(ops["rank"] == late[0]) & (ops["comm"] == comm) & (ops["counter"] == least)]
        if others < len(late) or others + len(late) < len(member) or not len(row):
            continue
        why = clause(Says.NOT_COMPLETED, op=case.op_on(row[0]), later=max(int(done.max()) - least, 0))
        return Finding(
            cause=Cause.UNKNOWN,
            candidates=tuple(Blame(rank, 1 / (len(late) + 1), (why,)) for rank in late[:LISTED]),
            comm=comm,
            op=case.op_of(row[0]),
            victims=tuple(int(r) for r in np.unique(picture.waits["rank"]) if r not in late),
            onset_s=float(row[0]["issue_s"]),
            evidence=(Evidence(what="members that have completed it", value=others, unit="ranks"),),
            complete=case.complete(picture),
        )
    return None


def _done(picture: Picture, comm: int) -> Ints:
    """How many operations each member that was read has completed there."""
    here = slice(int(picture.comm_at[comm]), int(picture.comm_at[comm] + picture.comm_size[comm]))
    return np.asarray(picture.member_done[here][picture.member_seen[here]])


def _have_seen(picture: Picture, wait: np.void) -> bool:
    """Have several members completed a later round, or all others there are?"""
    done = _done(picture, int(wait["comm"]))
    have = int((done > wait["counter"]).sum())
    return have >= min(SEVERAL, len(done) - 1)


def _ended_elsewhere(picture: Picture, wait: np.void) -> int:
    """Operations that this rank has in flight on the communicator of its wait, and that a peer has completed."""
    comm = int(wait["comm"])
    most = int(_done(picture, comm).max(initial=0))
    ops = picture.ops
    mine = (ops["rank"] == wait["rank"]) & (ops["comm"] == comm) & is_collective(ops["kind"]) & ~ops["failed"]
    return int((mine & (ops["counter"] <= most)).sum())
