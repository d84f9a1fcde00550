"""Ranks that others wait for, and of which nothing was read after that: culprits or victims.

Live they are evidence beside a rank that is named: the next look may show them. Of a recording there is no next look.
So there a rank whose dump is missing is a candidate beside it, and its words tell it from one whose dump was read.
"""

from __future__ import annotations

from dataclasses import replace

from whichrank.hang.case import LISTED, MOST_CANDIDATES, Case, most_candidates
from whichrank.hang.known_by_counts import blame_ahead, may_be_ahead
from whichrank.locate import waitgraph
from whichrank.model.clause import Clause, Says, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Picture


def unread_ranks(case: Case, picture: Picture, graph: waitgraph.WaitGraph) -> Finding:
    """Others wait for these, and nothing was read of them since: candidates, and nobody is named."""
    ranks = [int(r) for r in graph.unseen]
    wait = waitgraph.waiting_for(picture, graph, ranks[0])["wait"]
    said = [Blame(r, 0.3, (_unread(picture, r),)) for r in ranks]
    ahead = may_be_ahead(picture, graph)
    said[:0] = [blame_ahead(case, picture, graph, r, 0.3) for r in ahead]
    return Finding(
        cause=Cause.UNKNOWN,
        candidates=tuple(said[: most_candidates(picture)]),
        comm=int(wait["comm"]),
        op=case.op_of(wait),
        victims=tuple(int(v) for v in graph.waiting if int(v) not in ahead),
        onset_s=float(wait["since_s"]),
        evidence=(Evidence(what="waited for, and not read after that", value=len(ranks), unit="ranks"),),
        complete=False,
    )


def with_unread(found: Finding, picture: Picture, graph: waitgraph.WaitGraph) -> Finding:
    """What is found, with the ranks of a recording that others wait for too and of which nothing was read.

    Where only counts are known, a rank that says nothing need not be without a record: see `known_by_counts`.

    Args:
        found: Names ranks, or has candidates.
        picture: The job.
        graph: Who waits for whom.
    """
    if picture.recorded is None or picture.recorded.has_only_counts:
        return found
    said = {blame.rank for blame in (*found.culprits, *found.candidates)}
    more = [rank for rank in graph.unseen.tolist() if rank not in said]
    if not more:
        return found
    share = 1 / (len(more) + len(said))
    blames = tuple(Blame(rank, share, (_unread(picture, rank),)) for rank in more)
    victims = tuple(rank for rank in found.victims if rank not in more)
    return replace(found, candidates=(*found.candidates, *blames)[:MOST_CANDIDATES], victims=victims, complete=False)


def _unread(picture: Picture, rank: int) -> Clause:
    """Of a rank that others wait for."""
    has_record = picture.recorded is None or picture.recorded.has_only_counts or picture.present[rank]
    return clause(Says.AWAITED_UNREAD if has_record else Says.AWAITED_NO_RECORD)


def unread_facts(graph: waitgraph.WaitGraph) -> list[Evidence]:
    """Others wait for these too, but nothing was read of them since: they may be culprits or victims."""
    ranks = [int(r) for r in graph.unseen]
    if not ranks:
        return []
    where = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:LISTED]))}"
    return [Evidence(what="waited for too, and not read after that", value=len(ranks), unit="ranks", where=where)]
