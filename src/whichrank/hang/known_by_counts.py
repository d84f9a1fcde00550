"""What recordings leave open that know operations by their numbers only: logs of a watchdog, of RAS, of Megatrace.

They may name a group and not its members. Whoever waits in such a group waits for somebody, but nobody knows for whom.
And they say how many operations a rank has issued, but not which: a rank that waits alone may be late to nothing, and
have issued one operation too many.
"""

from __future__ import annotations

import numpy as np

from whichrank.hang.case import LISTED, Case
from whichrank.locate.waitgraph import WaitGraph
from whichrank.model.clause import Says, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Bools, Picture


def has_unknown_members(picture: Picture) -> Bools:
    """Of each communicator of a recording: is there a member whose rank is not known?"""
    found = np.zeros(len(picture.comm_size), np.bool_)
    if picture.recorded is not None:
        comm = np.repeat(np.arange(len(picture.comm_size)), picture.comm_size)
        found[comm[picture.member_rank < 0]] = True
    return found


def waits_for_unknown(picture: Picture, graph: WaitGraph) -> bool:
    """Does somebody wait in a group of which not all members are known?"""
    return bool(has_unknown_members(picture)[picture.waits["comm"][graph.waits]].any())


def members_unknown(case: Case, picture: Picture, graph: WaitGraph) -> Finding:
    """Who waits in which operation of such a group; nobody can be named.

    Args:
        case: For words.
        picture: The job.
        graph: Who waits for whom, and somebody waits in such a group.
    """
    waits = picture.waits[graph.waits]
    there = waits[has_unknown_members(picture)[waits["comm"]]]
    there = there[np.lexsort((there["rank"], there["since_s"]))]
    said = [
        Evidence(
            what="blocked on",
            value=case.op_on(wait),
            where=f"rank {int(wait['rank'])}",
        )
        for wait in there[:LISTED]
    ]
    return Finding(
        cause=Cause.UNKNOWN,
        comm=int(there[0]["comm"]),
        op=case.op_of(there[0]),
        victims=tuple(int(r) for r in graph.waiting),
        onset_s=float(there[0]["since_s"]),
        evidence=(
            Evidence(what="waiting, and for whom is not known", value=len(np.unique(there["rank"])), unit="ranks"),
            *said,
        ),
        complete=False,
    )


def may_be_ahead(picture: Picture, graph: WaitGraph) -> list[int]:
    """Ranks that wait for as many as they are, or for more, where only numbers of operations are known.

    Of two ranks at different numbers either may have gone wrong: one has not come, or the other has issued too much.
    Where several wait for one, that one is late. Those of which nothing was read may all be where that one is.
    """
    recorded = picture.recorded
    if recorded is None or not recorded.has_only_counts or waits_for_unknown(picture, graph):
        return []
    if len(graph.unseen) and len(graph.waiting) > 1:
        return []  # they agree with each other
    late = len(graph.sinks) + len(graph.unseen)
    return [int(r) for r in graph.waiting] if late >= len(graph.waiting) else []


def blame_ahead(case: Case, picture: Picture, graph: WaitGraph, rank: int, certainty: float) -> Blame:
    """What is said of such a rank."""
    wait = picture.waits[picture.waits["rank"] == rank][0]
    others = len(graph.sinks) + len(graph.unseen)
    return Blame(rank, certainty, (clause(Says.AHEAD, op=case.op_on(wait), others=others),))
