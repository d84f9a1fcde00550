"""Who waits for another rank outside of any operation: for the answer of a remote call, or for a message of its own.

A rank that others wait for and that is blocked in no operation looks like the culprit. It is a victim if it waits for
the answer of a parameter server, so the chain is followed further: to the rank that answers, where the sensor has
marked the call or the kernel knows the other end of a socket. At its end stands

- a process that is stopped or dead: hard evidence, it is named;
- a rank that is seen to run the program's own function for the call: named, with the usual patience;
- else nobody is named. A server may wait for what a third rank has to send, and a master waits for its trainers for as
  long as they train. So remote calls alone are only reported when the whole job is quiet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from whichrank.hang.acting import (
    acting_stack,
    is_own,
    name_of,
    place_in,
    sampled_at_s,
    serves,
    serving_stack,
    stacks_of,
    waits_for_thread,
)
from whichrank.hang.case import LISTED, Case
from whichrank.hang.reasons import is_held_up, reason_of, waits_for_others
from whichrank.locate.deaths import in_order
from whichrank.locate.waitgraph import WaitGraph
from whichrank.model.clause import Clause, Says, clause
from whichrank.model.codes import UNNUMBERED
from whichrank.model.evidence import TIME_BLOCKED, Evidence, waiting_for
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Reason
from whichrank.model.kinds import Kind
from whichrank.model.picture import Picture
from whichrank.model.telemetry import SourceKind, WaitChannel

QUIET_S: Final = 1.0
"""Nothing has completed and nobody has computed for so long, for others to be asked what they wait for."""
ASK_S: Final = 4.0
"""Quiet for so long, a rank that remote calls alone wait for is asked for its stack, which pauses it a moment."""
UNKNOWN_S: Final = 10.0
"""Quiet for so long, a wait for nobody knows whom is taken to be for the only stopped rank: a distributed backward pass
is such a wait, and may take seconds."""
_NO_NUMBER: Final = 255
"""In fields of an operation that a remote call has not."""
_SERVES: Final = 0.85
"""Confidence in a rank that has been called and is in the code that serves."""
_STOPPED: Final = 0.95
"""The most confidence in one that has been called and is stopped or gone."""


@dataclass(frozen=True)
class Wait:
    """A rank that waits outside of operations.

    Attributes:
        rank: Who waits.
        tid: Its thread, 0 unknown.
        peers: For whom; empty if that is not known.
        since_s: Since when.
        is_call: A remote call; else it was seen in the kernel.
    """

    rank: int
    tid: int
    peers: frozenset[int]
    since_s: float
    is_call: bool


def waits_outside(case: Case, picture: Picture, sinks: dict[int, int], min_age_s: float) -> list[Wait]:
    """All waits outside of operations that are known.

    Args:
        case: The job.
        picture: The same at one moment.
        sinks: Ranks whose stacks are looked at, and the thread of each that others wait for; 0 unknown.
        min_age_s: Seconds that a remote call must have lasted.
    """
    state, found = case.store, []
    for row in picture.remote:
        rank = int(row["rank"])
        lives = picture.fresh[rank] and not picture.stopped[rank] and not picture.gone[rank] and row["peer"] != rank
        if lives and picture.read_s[rank] - row["since_s"] >= min_age_s:
            peers = frozenset({int(row["peer"])} - {-1, rank})
            found.append(Wait(rank, int(row["tid"]), peers, float(row["since_s"]), is_call=True))
    marked = {wait.rank for wait in found}
    for rank, tid in sinks.items():
        since_s = float(state.ranks.went_on_s[rank])
        if rank in marked or picture.stopped[rank] or picture.gone[rank] or not is_held_up(state, rank, tid, since_s):
            continue
        stack = acting_stack(state, rank, tid)
        source = stack.source if stack else None
        ranks = source.ranks if source and source.kind is SourceKind.RANK else []
        peers = frozenset(r for r in ranks if r < picture.world_size and r != rank)
        seen_s = sampled_at_s(state, rank)
        found.append(Wait(rank, tid, peers, min(seen_s, picture.now_s), is_call=False))
    return found


def sinks_left(graph: WaitGraph, waits: list[Wait]) -> list[int]:
    """Ranks that others wait for in operations, but for those whose thread waits outside of one."""
    of: dict[int, set[int]] = {}
    for wait in waits:
        of.setdefault(wait.rank, set()).add(wait.tid)
    left = []
    for rank in graph.sinks.tolist():
        tid, waiting = thread_waited_for(graph, rank), of.get(rank, set())
        if not (waiting if not tid else {0, tid} & waiting):
            left.append(rank)
    return left


def thread_waited_for(graph: WaitGraph, rank: int) -> int:
    """The thread of a sink that others wait for: the one that served their operation last; 0 if it is not known."""
    return int(graph.edges.target_tid[graph.sink_edge[rank]])


def quiet_since_s(case: Case) -> float:
    """Since when no operation has completed and no rank has begun to wait for a remote call.

    That a process computes says little here: RPC polls its shared memory all the time.
    """
    store = case.store
    return max(store.last_completion_s, store.last_call_s, store.first_seen_s)


def held_from_outside(
    case: Case, picture: Picture, waits: list[Wait], in_operations: list[int], onset_s: float | None,
    halted: list[int] | None = None,
) -> Finding | None:  # fmt: skip
    """Who holds up ranks that wait outside of operations.

    Args:
        case: The job.
        picture: The same at one moment.
        waits: See `waits_outside`.
        in_operations: Ranks that wait in operations.
        onset_s: Since when they wait, if for somebody who waits outside; None: nobody does, or they wait for others.
        halted: Stopped ranks that they wait for, where that is known otherwise.
    """
    if not waits:
        return None
    waiting = sorted({w.rank for w in waits} | set(in_operations))
    halted = _halted(case, picture, waits) if halted is None else halted
    since_s = min(w.since_s for w in waits)
    if halted:
        named = [_blame_of_halted(case, picture, rank, waits) for rank in halted]
        return _finding(case, picture, waits, waiting, named, since_s, hard=True)
    is_alone = onset_s is None
    if onset_s is None:
        onset_s = max(since_s, quiet_since_s(case))
    ends = _ends(picture, waits)
    named = [blame for rank in ends if (blame := _blame_of_living(case, rank, waits, may_run=not is_alone))]
    if len(named) > 1 or not all(r == named[0][0].rank or _serves_nobody(case, r) for r in ends if named):
        named = []
    found = _finding(case, picture, waits, waiting, named, onset_s, hard=False)
    if named:
        return found
    kept = {rank: place for rank in ends if (place := _kept_from_serving(case, rank, since_s))}
    if is_alone:  # they may well be at work on it, but for one in which no function can run
        ask = tuple(ends[:LISTED]) if picture.now_s - onset_s >= ASK_S else ()
        computed_s = 0.0 if len(kept) == len(ends) > 0 else case.store.last_computed_s
        found = replace(found, onset_s=max(onset_s, computed_s), ask=ask)
    said = {rank: (_is_waited_for(waits, rank), *kept.get(rank, ())) for rank in ends}
    for wait in waits:
        if not wait.peers or not ends:
            said.setdefault(wait.rank, (clause(Says.AWAITS_UNKNOWN_RANK),))
    candidates = tuple(Blame(rank, 1 / len(said), why) for rank, why in list(said.items())[:LISTED])
    return replace(
        found, cause=Cause.UNKNOWN, fault_class=None, candidates=candidates,
        victims=tuple(r for r in found.victims if r not in said),
        next=(clause(Says.STACKS_OF_SUSPECTS),),
    )  # fmt: skip


def quiet_beside_stopped(case: Case, picture: Picture) -> Finding | None:
    """One rank is stopped, and the rest of the job is quiet in no operation: do the others wait for it?

    They may wait for a key in a store. If one is seen to wait for another process, the stopped one is named; until then
    it is a candidate, and stacks are asked for. Where a process computes, which RPC does while it waits, all that are
    asked must be seen to wait. Of torch's rendezvous see `stopped_in_rendezvous`.
    """
    store = case.store
    stopped = np.flatnonzero(picture.stopped & picture.present).tolist()
    alive = picture.present & picture.fresh & ~picture.gone & ~picture.stopped
    if len(stopped) != 1 or not alive.any() or picture.now_s - quiet_since_s(case) < QUIET_S:
        return None
    since_s = max(quiet_since_s(case), float(store.ranks.stopped_since_s[stopped[0]]))
    others = np.flatnonzero(alive)[:LISTED].tolist()
    seen = [r for r in others if is_held_up(store, r, 0, since_s)]
    if seen and (len(seen) == len(others) or picture.now_s - store.last_computed_s >= QUIET_S):
        waits = [Wait(rank, 0, frozenset(), since_s, is_call=False) for rank in seen]
        return held_from_outside(case, picture, waits, [], None, stopped)
    reported = reason_of(store, picture, stopped[0])
    return Finding(
        cause=Cause.UNKNOWN,
        candidates=(Blame(stopped[0], 0.5, (*reported.clauses, clause(Says.NOTHING_COMPLETES))),),
        waited_for=frozenset(stopped),
        onset_s=since_s,
        ask=tuple(others),
        evidence=reported.evidence,
        complete=case.complete(picture),
        next=(clause(Says.STACKS_OF_ALL),),
    )


def _halted(case: Case, picture: Picture, waits: list[Wait]) -> list[int]:
    """Ranks that are waited for and are stopped or dead.

    Who waits for several has perhaps got the answer of the stopped one: the others must be seen to serve nobody. Where
    it is not known for whom somebody waits, it is the only stopped rank of a job that has been quiet for long.
    """
    halted = picture.stopped | (picture.gone & ~in_order(case.store.departures.open_ends()))
    together: dict[tuple[int, int], set[int]] = {}
    for wait in waits:
        together.setdefault((wait.rank, wait.tid), set()).update(wait.peers)
    known: set[int] = set()
    for peers in together.values():
        if all(halted[p] or _serves_nobody(case, p) for p in peers):
            known.update(p for p in peers if halted[p])
    if known or all(w.peers for w in waits):
        return sorted(known)
    stopped = np.flatnonzero(picture.stopped & picture.present).tolist()
    if len(stopped) != 1:
        return []
    quiet_since = max(quiet_since_s(case), float(case.store.ranks.stopped_since_s[stopped[0]]))
    return stopped if picture.now_s - quiet_since >= UNKNOWN_S else []


def _ends(picture: Picture, waits: list[Wait]) -> list[int]:
    """Ranks that are waited for and that wait for nobody, as far as can be seen."""
    blocked = {w.rank for w in waits} | set(picture.waits["rank"].tolist())
    return sorted({p for w in waits for p in w.peers} - blocked)


def _is_waited_for(waits: list[Wait], rank: int) -> Clause:
    waiting = tuple(sorted({w.rank for w in waits if rank in w.peers}))
    says = Says.NOT_ANSWERED_MESSAGE
    if any(w.is_call for w in waits):
        says = Says.NOT_ANSWERED_CALL if len(waiting) == 1 else Says.NOT_ANSWERED_CALLS
    return clause(says, waiting=waiting)


def _blame_of_halted(case: Case, picture: Picture, rank: int, waits: list[Wait]) -> tuple[Blame, Reason | None]:
    reported = reason_of(case.store, picture, rank)
    is_known = any(rank in w.peers for w in waits)
    if is_known:
        return Blame(rank, reported.confidence, (_is_waited_for(waits, rank), *reported.clauses)), reported.reason
    why = (clause(Says.ONLY_STOPPED_ONE), *reported.clauses)
    return Blame(rank, min(reported.confidence, _STOPPED), why), reported.reason


def _serves_nobody(case: Case, rank: int) -> bool:
    """Was it looked at, and seen to run no function for a remote call?"""
    stacks = stacks_of(case.store, rank)
    return bool(stacks) and not any(serves(stack) for stack in stacks)


def _kept_from_serving(case: Case, rank: int, since_s: float) -> tuple[Clause, ...]:
    """The thread that held the GIL when nothing ran for a call made at `since_s`; empty otherwise.

    Python functions of remote calls need the GIL. Threads that run Python let go of it every few milliseconds, but C
    code may keep it. From outside these two look alike, so this names nobody: it may also wait for a third rank.
    """
    store = case.store
    holder = next((stack for stack in stacks_of(store, rank) if stack.holds_gil), None)
    if holder is None or sampled_at_s(store, rank) < since_s or not _serves_nobody(case, rank):
        return ()
    return (clause(Says.HOLDS_GIL_IN, thread=name_of(holder), place=place_in(holder)),)


def _blame_of_living(case: Case, rank: int, waits: list[Wait], *, may_run: bool) -> tuple[Blame, Reason | None] | None:
    """A rank that is seen to be at what it is waited for, in code of its own; `may_run`: also if it computes there."""
    if any(not w.peers for w in waits):
        return None
    store = case.store
    is_call = any(w.is_call and rank in w.peers for w in waits)
    stack = serving_stack(store, rank) if is_call else acting_stack(store, rank)
    if (
        stack is None
        or (stack.channel == WaitChannel.NONE and not may_run)
        or not is_own(stack)
        or waits_for_thread(stack)
        or waits_for_others(stack)
    ):
        return None
    at = clause(Says.SERVES_IN if is_call else Says.RUNS_IN, place=place_in(stack))
    return Blame(rank, _SERVES, (_is_waited_for(waits, rank), at)), Reason.USER_CODE


def _finding(
    case: Case, picture: Picture, waits: list[Wait], waiting: list[int],
    named: list[tuple[Blame, Reason | None]], onset_s: float, *, hard: bool,
) -> Finding:  # fmt: skip
    longest = min(waits, key=lambda w: w.since_s)
    culprits = tuple(blame for blame, _ in named)
    ranks = [blame.rank for blame in culprits]
    gone = any(picture.gone[r] for r in ranks)
    kind = Kind.REMOTE_CALL if any(w.is_call for w in waits) else Kind.OUTSIDE
    op = {
        "kind": int(kind),
        "counter": UNNUMBERED,
        "dtype": _NO_NUMBER,
        "count": 0,
        "reduce_op": _NO_NUMBER,
        "peer": -1,
    }
    waited_s = round(picture.now_s - longest.since_s, 2)
    evidence = [Evidence(what=TIME_BLOCKED, value=waited_s, unit="s", where=f"rank {longest.rank}")]
    for rank in ranks:
        directly = sorted({w.rank for w in waits if rank in w.peers})
        evidence += [waiting_for(rank, len(directly))] if directly else []
        evidence += reason_of(case.store, picture, rank).evidence if hard else ()
    return Finding(
        cause=Cause.PROCESS_EXIT if gone else Cause.NOT_ENTERED,
        kind="failed" if gone else "hang",
        fault_class="H1",
        reason=next((reason for _, reason in named if reason), None),
        culprits=culprits,
        op=op,
        victims=tuple(r for r in waiting if r not in ranks),
        waited_for=frozenset(ranks or _ends(picture, waits)),
        onset_s=onset_s,
        hard=hard,
        evidence=tuple(evidence),
        complete=case.complete(picture),
    )
