"""Most have ended in order, and others wait for them: these may have issued more, or those too little."""

from __future__ import annotations

from whichrank.hang.case import LISTED, Case
from whichrank.locate.waitgraph import WaitGraph, oldest_wait
from whichrank.model.clause import Says, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Picture


def left_alone(case: Case, picture: Picture, graph: WaitGraph) -> Finding:
    """Most have ended in order, and others wait for them: these may have issued more, or those too little."""
    waiting = [int(r) for r in graph.waiting]
    wait = oldest_wait(picture, graph)
    waits = clause(Says.LEFT_ALONE, op=case.op_on(wait))
    ended = clause(Says.ENDED_AND_AWAITED, op=case.op_on(wait), waiting=len(waiting))
    said = [(r, waits) for r in waiting] + [(int(r), ended) for r in graph.sinks]
    return Finding(
        cause=Cause.UNKNOWN,
        candidates=tuple(Blame(r, 1 / len(said), (why,)) for r, why in said[:LISTED]),
        comm=int(wait["comm"]),
        op=case.op_of(wait),
        victims=tuple(waiting),
        onset_s=float(wait["since_s"]),
        hard=True,
        evidence=(Evidence(what="waiting", value=len(waiting), unit="ranks"),),
        complete=case.complete(picture),
        next=(clause(Says.COUNT_OPERATIONS),),
    )
