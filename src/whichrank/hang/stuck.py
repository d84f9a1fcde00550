"""All have entered, all run, and nothing moves: the network, or one end of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from whichrank.hang.awaited import part_of_wait
from whichrank.hang.case import LISTED, Case
from whichrank.locate import waitgraph
from whichrank.model.clause import Says, clause
from whichrank.model.codes import UNNUMBERED
from whichrank.model.evidence import TIME_BLOCKED, Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Link
from whichrank.model.kinds import SYNCHRONISING, Kind, is_collective, is_message
from whichrank.model.picture import Picture
from whichrank.store.paths import dead_words


def stuck(case: Case, picture: Picture, graph: waitgraph.WaitGraph) -> Finding:
    """All have entered, all run, nothing moves."""
    waits = picture.waits[graph.stuck]
    oldest = waits[int(np.argmin(waits["since_s"]))]
    pairs = {
        (rank, peer) if w["kind"] == Kind.SEND else (peer, rank)
        for w in waits
        if is_message(w["kind"]) and w["peer"] >= 0
        for rank, peer in ((int(w["rank"]), picture.group_rank_to_rank(int(w["comm"]), int(w["peer"]))),)
    }
    comm = int(oldest["comm"])
    members = picture.member_rank[picture.comm_at[comm] : picture.comm_at[comm] + picture.comm_size[comm]]
    if len(members) == 2 and not pairs:
        pairs = {(int(members[0]), int(members[1]))}
    # A receive from any source may wait for somebody who never sent: nothing is known of the network then.
    any_source = bool((waits["kind"] == Kind.RECV_ANY).any())
    entered = (Evidence(what="members that have entered", value=len(members)),) if is_collective(oldest["kind"]) else ()
    dead = case.store.paths.dead_pairs(picture, graph.waiting)
    apart, done = ([], "") if dead else _complete_elsewhere(case, picture, waits, oldest)
    is_numbered = bool((waits["counter"] < UNNUMBERED).all())  # else the ends may be of two messages
    # Where nobody looked at sockets, a device that stands still looks the same as a path that carries nothing.
    open_question = not dead and (any_source or bool(apart) or not is_numbered or picture.recorded is not None)
    phase, microbatch = part_of_wait(case, oldest)
    pairs = {(src, dst) for src, dst, _ in dead} or (set() if any_source else {p for p in pairs if min(p) >= 0})
    return Finding(
        cause=Cause.UNKNOWN if open_question else Cause.TRANSPORT,
        fault_class=None if open_question else "H3",
        candidates=tuple(
            Blame(r, 1 / len(apart), (clause(Says.COMPLETED_BY_OTHERS, op=done),)) for r in apart[:LISTED]
        ),
        comm=comm,
        op=case.op_of(oldest),
        phase=phase,
        microbatch=microbatch,
        victims=tuple(int(r) for r in graph.waiting if int(r) not in apart),
        onset_s=float(oldest["since_s"]),
        hard=bool(dead),
        seasoned=bool(dead),
        links=tuple(Link(src=src, dst=dst) for src, dst in sorted(pairs)[:LISTED]),
        evidence=(
            *entered,
            *dead_words(dead),
            *case.store.paths.ask_about(dead, case.store.ranks.agent, picture.now_s),
            Evidence(what=TIME_BLOCKED, value=round(picture.now_s - float(oldest["since_s"]), 2), unit="s"),
            *messages(case, np.unique(waits["rank"][waits["comm"] == comm])),
        ),
        complete=case.complete(picture),
        next=(clause(Says.SEE_BYTES),) if apart else (),
    )


def _complete_elsewhere(case: Case, picture: Picture, waits: Any, wait: Any) -> tuple[list[int], str]:
    """Who still waits in a synchronising round that others have completed, and that round in words.

    Either it does not see that the round is complete, or what the others sent is lost on the way to it: its own
    process or the path, so it is a candidate and no more (DESIGN 5.2, complete here and not there).
    """
    if int(wait["kind"]) not in SYNCHRONISING:
        return [], ""
    at, size = int(picture.comm_at[wait["comm"]]), int(picture.comm_size[wait["comm"]])
    members, done = picture.member_rank[at : at + size], picture.member_done[at : at + size] >= wait["counter"]
    inside = waits["rank"][(waits["comm"] == wait["comm"]) & (waits["counter"] == wait["counter"])]
    apart = [int(r) for r in members[~done] if r in inside]
    return (apart, case.op_name(wait)) if done.any() else ([], "")


def messages(case: Case, ranks: Any) -> tuple[Evidence, ...]:
    """What frames count: in the last window, and of the operation (CCL-D's fewest: evidence, no verdict)."""
    rates = case.store.ranks.rates[ranks]
    rates = rates[rates["samples"] > 0]
    if not len(rates):
        return ()
    window_ms = round(float((rates["end_ns"] - rates["start_ns"]).max()) / 1e6)
    moved = int((rates["send_messages"] + rates["recv_messages"]).sum())
    facts = [Evidence(what=f"messages in the last {window_ms} ms", value=moved, where=f"{len(rates)} ranks")]
    for path, name in (("sent", "op_sent"), ("received", "op_received")):
        counts = rates[name]
        least = rates[counts == counts.min()]
        if len(least) == 1 and len(rates) > 1:
            where = f"rank {int(least['rank'][0])}; the others {int(np.median(counts))} in the median"
            what = f"fewest messages {path} in the operation"
            facts.append(Evidence(what=what, value=int(counts.min()), where=where))
    return tuple(facts)
