"""Ranks that others wait for and that wait for nobody (DESIGN 5.2): what they do, and whether to name them."""

from __future__ import annotations

from typing import Any

import numpy as np

from whichrank.hang.case import Case, most_candidates
from whichrank.hang.known_by_counts import blame_ahead, may_be_ahead, waits_for_unknown
from whichrank.hang.reasons import held_up_by, reason_of
from whichrank.hang.remote import thread_waited_for
from whichrank.hang.rendezvous import missing_from_meetings
from whichrank.hang.unread import unread_facts
from whichrank.locate import waitgraph
from whichrank.model.clause import Clause, Says, clause
from whichrank.model.evidence import TIME_BLOCKED, Evidence, waiting_for
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.kinds import is_message
from whichrank.model.picture import Bools, Picture

IDLE_CPU = 0.1
"""Share of a core below which a process does nothing."""
MOST_NAMED = 1024
"""Ranks in one verdict: nobody reads more, and each has its reason looked up."""


def sinks_of(case: Case, picture: Picture, graph: waitgraph.WaitGraph, sinks: list[int], hard: bool) -> Finding:
    """What is found of the ends of the graph.

    Args:
        case: The job.
        picture: The same job now.
        graph: Who waits for whom.
        sinks: Those of its ends that are in question.
        hard: They are stopped or gone, so that nothing else is asked.
    """
    absent = None if hard else missing_from_meetings(picture, sinks)
    beside = [] if hard else apart(case, picture, graph)
    beside = sorted({*beside, *(absent or ())} - set(sinks))
    ahead = [] if hard else may_be_ahead(picture, graph)
    since_s = {r: float(picture.waits["since_s"][graph.edges.wait[graph.sink_edge[r]]]) for r in sinks}
    if hard:
        named = sinks
    elif beside or ahead or absent is not None:
        named = []
    else:
        tids = {r: thread_waited_for(graph, r) for r in sinks}
        waiting, unseen = len(graph.waiting), len(graph.unseen) + waits_for_unknown(picture, graph)
        named = held_up_by(case.store, sinks, min(since_s.values()), waiting, unseen, tids)
    longest = min(named or sinks, key=lambda r: since_s[r])
    facts = waitgraph.waiting_for(picture, graph, longest)
    wait = facts["wait"]
    waited = picture.now_s - float(wait["since_s"])
    evidence = [Evidence(what=TIME_BLOCKED, value=round(waited, 2), unit="s", where=f"rank {int(wait['rank'])}")]
    share = 1 / (len(sinks) + len(beside) + len(ahead))
    blames, reasons = [], []
    most = most_candidates(picture)
    for rank in named[:MOST_NAMED] or sinks[:most]:
        own = waitgraph.waiting_for(picture, graph, rank)
        reported = reason_of(case.store, picture, rank, thread_waited_for(graph, rank))
        reasons.append(reported.reason)
        certainty = reported.confidence if named else share
        blames.append(Blame(rank, certainty, (_did(case, own), *reported.clauses)))
        evidence += [
            waiting_for(rank, len(own["waiters"])),
            *reported.evidence,
        ]
    evidence += unread_facts(graph)
    for rank in beside:
        idle = (clause(Says.IN_NO_OPERATION), *reason_of(case.store, picture, rank).clauses)
        blames.append(Blame(rank, share, idle))
    if not named and case.store.recorded is not None and case.store.recorded.has_only_counts:
        blames += [Blame(int(r), share, (clause(Says.AWAITED_UNREAD),)) for r in graph.unseen[: most - len(blames)]]
    first = (
        0 if len(sinks) + len(graph.unseen) > len(ahead) else len(blames)
    )  # where most have not come, who is ahead is alone
    blames[first:first] = [blame_ahead(case, picture, graph, rank, share) for rank in ahead]
    any_gone = any(picture.gone[r] for r in named)
    inside = bool(facts["entered"])  # stopped after entering: what DESIGN calls `device`
    cause = Cause.PROCESS_EXIT if any_gone else Cause.DEVICE if inside else Cause.NOT_ENTERED
    return Finding(
        cause=cause if named else Cause.UNKNOWN,
        kind="failed" if any_gone else "hang",
        fault_class=None if not named else "H3" if inside and not any_gone else "H1",
        reason=next((r for r in reasons if r), None) if named else None,
        culprits=tuple(blames) if named else (),
        candidates=() if named else tuple(blames[:most]),
        comm=int(wait["comm"]),
        op=case.op_of(wait),
        victims=tuple(sorted({*graph.waiting.tolist(), *sinks} - {b.rank for b in blames})),
        waited_for=frozenset(graph.sinks.tolist()),
        onset_s=float(wait["since_s"]),
        hard=hard,
        evidence=tuple(evidence),
        complete=case.complete(picture),
        next=() if named else (clause(Says.STACKS_OF_SUSPECTS),),
    )


def blame_of_sink(case: Case, picture: Picture, graph: waitgraph.WaitGraph, rank: int) -> Blame:
    """What is said of a rank that others wait for and that waits for nobody."""
    reported = reason_of(case.store, picture, rank, thread_waited_for(graph, rank))
    did = _did(case, waitgraph.waiting_for(picture, graph, rank))
    return Blame(rank, reported.confidence, (did, *reported.clauses))


def apart(case: Case, picture: Picture, graph: waitgraph.WaitGraph) -> list[int]:
    """Ranks in no operation that nobody waits for in one, stopped or idle: a sink may wait for them elsewhere."""
    # In a recording whoever is in no operation, whatever it does.
    beside = _idle(case, picture, graph) if picture.recorded is None else picture.present.copy()
    in_graph = (graph.waiting, graph.sinks, graph.unseen, picture.ops["rank"], picture.waits["rank"])
    beside[np.concatenate(in_graph)] = False
    return [int(r) for r in np.flatnonzero(beside)[: most_candidates(picture)]]


def _idle(case: Case, picture: Picture, graph: waitgraph.WaitGraph) -> Bools:
    """Ranks that are stopped, or do nothing."""
    rows, since_s = case.store.ranks.rows, float(picture.waits["since_s"][graph.waits].min())
    idle = (case.store.ranks.went_on_s < since_s) & (case.store.ranks.cpu_share < IDLE_CPU) & ~picture.busy
    idle &= (rows["init_ns"] > 0) & (rows["closed_ns"] == 0) & (rows["exception_ns"] == 0)
    return np.asarray(picture.present & picture.fresh & ~picture.gone & (picture.stopped | idle))


def _did(case: Case, facts: dict[str, Any]) -> Clause:
    """What a sink has to do with the operation that others wait on.

    Who counts what was enqueued counts a call once it has returned, so there a rank may be inside of the call.
    """
    wait = facts["wait"]
    recorded = case.store.recorded
    if recorded is not None and recorded.has_only_counts and not facts["entered"] and not is_message(wait["kind"]):
        return clause(Says.NOT_ENQUEUED, op=case.op_on(wait))
    if is_message(wait["kind"]):
        says = Says.TAKEN_PART if facts["entered"] else Says.NOT_ANSWERED
        waiting, group = (int(wait["rank"]),), case.comm_name(int(wait["comm"]))
        return clause(says, op=case.op_name(wait), waiting=waiting, group=group)
    return clause(Says.ENTERED if facts["entered"] else Says.NOT_ENTERED, op=case.op_on(wait))
