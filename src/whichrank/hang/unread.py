"""Ranks that others wait for, and of which nothing was read after that: culprits or victims."""

from __future__ import annotations

from whichrank.hang.case import LISTED, Case
from whichrank.hang.known_by_counts import blame_ahead, may_be_ahead
from whichrank.locate import waitgraph
from whichrank.model.clause import Says, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Picture


def unread_ranks(case: Case, picture: Picture, graph: waitgraph.WaitGraph) -> Finding:
    """Others wait for these, and nothing was read of them since: candidates, and nobody is named."""
    ranks = [int(r) for r in graph.unseen]
    wait = waitgraph.waiting_for(picture, graph, ranks[0])["wait"]
    said = [Blame(r, 0.3, (clause(Says.AWAITED_UNREAD),)) for r in ranks]
    ahead = may_be_ahead(picture, graph)
    said[:0] = [blame_ahead(case, picture, graph, r, 0.3) for r in ahead]
    return Finding(
        cause=Cause.UNKNOWN,
        candidates=tuple(said[:LISTED]),
        comm=int(wait["comm"]),
        op=case.op_of(wait),
        victims=tuple(int(v) for v in graph.waiting if int(v) not in ahead),
        onset_s=float(wait["since_s"]),
        evidence=(Evidence(what="waited for, and not read after that", value=len(ranks), unit="ranks"),),
        complete=False,
    )


def unread_facts(graph: waitgraph.WaitGraph) -> list[Evidence]:
    """Others wait for these too, but nothing was read of them since: they may be culprits or victims."""
    ranks = [int(r) for r in graph.unseen]
    if not ranks:
        return []
    where = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:LISTED]))}"
    return [Evidence(what="waited for too, and not read after that", value=len(ranks), unit="ranks", where=where)]
