"""Ranks that wait outside of operations, beside the wait-for graph or where there is none."""

from __future__ import annotations

from whichrank.hang.case import Case
from whichrank.hang.remote import held_from_outside, quiet_beside_stopped, sinks_left, thread_waited_for, waits_outside
from whichrank.locate.waitgraph import WaitGraph, oldest_wait
from whichrank.model.finding import Finding
from whichrank.model.picture import Picture


def outside_of_graph(
    case: Case, picture: Picture, graph: WaitGraph, min_age_s: float
) -> tuple[Finding | None, list[int]]:
    """Who is to blame if a rank at the end of the graph waits outside of operations; and the ends that do not."""
    sinks = {int(r): thread_waited_for(graph, int(r)) for r in graph.sinks}
    waits = waits_outside(case, picture, sinks, min_age_s)
    left, waiting = sinks_left(graph, waits), [int(r) for r in graph.waiting]
    is_explained = bool(sinks) and not left
    onset_s = float(oldest_wait(picture, graph)["since_s"]) if is_explained else None
    found = held_from_outside(case, picture, waits, waiting, onset_s)
    return found if found and (found.hard or is_explained) else None, left


def outside_only(case: Case, picture: Picture, min_age_s: float) -> Finding | None:
    """The same while nobody waits in an operation."""
    waits = waits_outside(case, picture, {}, min_age_s)
    return held_from_outside(case, picture, waits, [], None) if waits else quiet_beside_stopped(case, picture)
