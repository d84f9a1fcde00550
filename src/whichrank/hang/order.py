"""The questions about a job in which ranks wait, in their order (DESIGN 5.2). This page is all of it.

Each question has a file of its own and returns a `Finding` or None; the first that can answer does. Where ranks have
died or failed, `endings.who_ended_it` is asked instead, and has an order of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.hang.case import Case
from whichrank.hang.deadlock import deadlock
from whichrank.hang.device import done_elsewhere, overtaken
from whichrank.hang.first_end import ended_first
from whichrank.hang.known_by_counts import members_unknown, waits_for_unknown
from whichrank.hang.left_alone import left_alone
from whichrank.hang.mismatch import mismatch
from whichrank.hang.outside import outside_of_graph, outside_only
from whichrank.hang.reported import reported_by_others
from whichrank.hang.sinks import sinks_of
from whichrank.hang.stuck import stuck
from whichrank.hang.unreachable import unreachable
from whichrank.hang.unread import unread_ranks, with_unread
from whichrank.locate import waitgraph
from whichrank.locate.deaths import in_order
from whichrank.model.finding import Finding
from whichrank.model.picture import Picture, Recorded


def what_hangs(case: Case, picture: Picture, min_age_s: float, named: Sequence[frozenset[int]] = ()) -> Finding | None:
    """What keeps the blocked ranks, if anything can be said.

    Args:
        case: The job.
        picture: The same job now.
        min_age_s: Seconds that a wait must have lasted.
        named: The ranks of each open incident, the one reported last first.
    """
    if not len(waitgraph.lasting(picture, min_age_s)):
        return outside_only(case, picture, min_age_s)
    graph = waitgraph.build(picture, min_age_s)
    if not len(graph.edges.wait) and not len(graph.stuck):
        return outside_only(case, picture, min_age_s)
    halted = [int(r) for r in graph.sinks if picture.stopped[r] or picture.gone[r]]
    if halted:
        if len(graph.waiting) < len(halted) and in_order(case.store.departures.ends())[halted].all():
            return left_alone(case, picture, graph)
        return with_unread(sinks_of(case, picture, graph, _news(halted, named), hard=True), picture, graph)
    if contradicts := mismatch(case, picture, min_age_s):
        return with_unread(contradicts, picture, graph)
    if len(graph.overtaken):
        return with_unread(overtaken(case, picture, graph), picture, graph)
    outside, sinks = outside_of_graph(case, picture, graph, min_age_s)
    if outside:
        return outside
    if len(sinks):
        return with_unread(sinks_of(case, picture, graph, sinks, hard=False), picture, graph)
    if away := unreachable(case, picture, graph):
        return away
    if len(graph.unseen):
        return unread_ranks(case, picture, graph)
    if waits_for_unknown(picture, graph):
        return members_unknown(case, picture, graph)
    if len(graph.cycle):
        return deadlock(case, picture, graph)
    if len(graph.stuck):
        return stuck(case, picture, graph)
    return None


def what_is_recorded(case: Case, picture: Picture, recorded: Recorded) -> Finding | None:
    """The same of a recording that others made: no wait is too young, and what its logs report is heard too."""
    found = what_hangs(case, picture, 0.0)
    if found is not None and not found.names and (late := done_elsewhere(case, picture)):
        found = late
    found = reported_by_others(case, picture, recorded, found)
    return found or ended_first(case, picture, recorded)


def _news(halted: list[int], named: Sequence[frozenset[int]]) -> list[int]:
    """Of several halted ranks: those that no open incident names, else those of the incident reported last."""
    reported = [names.intersection(halted) for names in named]
    news = frozenset(halted).difference(*reported) or next(names for names in reported if names)
    return sorted(news)
