"""Who waits for whom, over all communicators, and who is at the end.

A thread that is blocked on an operation waits for the members that keep the operation from completing: those that have
not entered it, and those that have but whose process is stopped or gone. The ranks that others wait for and that wait
for nobody are the *sinks*: the culprits of a hang. Everybody else is a victim, however long it waits.

Four things keep the graph honest (DESIGN 5.1, 5.2):
- an edge leaves only a thread that is *blocked*; an operation in flight that nobody waits for blocks nobody;
- "has not entered" counts only if that rank's ring was read after somebody who waits for it had entered;
- a target is blocked only if the very thread that serves that communicator is;
- a rank whose agent has fallen silent is neither victim nor culprit: what it did last is no news.

All who wait for one round wait for the same members, so an edge leads from a *demand* (a round of a collective, or one
send/recv) to a rank: O(N) in ranks, also when half of a job waits for the other half.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.kinds import ROOTED, SYNCHRONISING, Kind
from whichrank.model.picture import Bools, Floats, Ints, Picture
from whichrank.model.signature import mix

MANY = 8
"""Members of a communicator, from which they are many."""
SEND, RECV, RECV_ANY = int(Kind.SEND), int(Kind.RECV), int(Kind.RECV_ANY)


@dataclass(frozen=True)
class Edges:
    """Who is waited for: one row per (demand, rank waited for)."""

    demand: Ints
    wait: Ints
    """Row in `Picture.waits` of the longest wait of the demand."""
    target: Ints
    """Rank waited for."""
    target_tid: Ints
    """The thread there that would have to act."""
    entered: Bools
    """It has entered the operation, but its process is suspended or gone."""
    known: Bools
    """Its ring was read after the wait began."""
    either: Bools
    """One of several would do (receive from any source)."""


@dataclass(frozen=True)
class WaitGraph:
    """What the wait-for graph says."""

    edges: Edges
    waits: Ints
    """Rows of `Picture.waits` that make edges, sorted by demand."""
    demand: Ints
    """Their demands."""
    waiting: Ints
    """Ranks with a blocked thread."""
    sinks: Ints
    """Ranks that others wait for and that wait for nobody, known to be so."""
    unseen: Ints
    """Ranks that others wait for, whose state since then is not known."""
    sink_edge: dict[int, int] = field(default_factory=dict)
    """For each sink and unseen rank the edge that says most: of an operation that it entered, of who waits longest."""
    cycle: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Ranks on a cycle of waits, when there is no sink."""
    cycle_explicit: bool = False
    """Every wait on the cycle was reported by a sensor, none inferred."""
    stuck: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows of `Picture.waits` on operations that everybody has entered and nobody is stopped in."""
    overtaken: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows of `Picture.waits` whose round others have completed, and a later one with it: they wait for nobody."""


def lasting(picture: Picture, min_age_s: float) -> Ints:
    """Rows of `Picture.waits` that make edges: without any there is nothing to build.

    Args:
        picture: The job.
        min_age_s: Seconds that a wait must have lasted.
    """
    age_s = picture.read_s[picture.waits["rank"]] - picture.waits["since_s"]
    return np.flatnonzero(_usable(picture) & (age_s >= min_age_s))


def _usable(picture: Picture) -> Bools:
    """Of each wait: it was read lately, of a rank that could end it."""
    rank = picture.waits["rank"]
    return np.asarray(picture.fresh[rank] & ~picture.stopped[rank] & ~picture.gone[rank])


def build(picture: Picture, min_age_s: float) -> WaitGraph:
    """The wait-for graph of all threads that had been blocked for at least `min_age_s` when they were read.

    Waits younger than that still count as blocked for the question whether a target waits itself.

    Args:
        picture: The job.
        min_age_s: Seconds that a wait must have lasted to make an edge.
    """
    waits = picture.waits
    rank = waits["rank"]
    halted = picture.stopped | picture.gone
    usable = _usable(picture)
    edges, rows, demand = edges_of(picture, lasting(picture, min_age_s))
    passed = overtaken(picture, rows) if picture.recorded else np.zeros(len(rows), np.bool_)

    safe = np.maximum(edges.target, 0)
    asked = usable & _table(picture.world_size, safe)[rank]
    asked[rows[passed]] = False
    blocked = _thread_key(rank[asked], waits["tid"][asked])
    tid = np.where(edges.target_tid > 0, edges.target_tid, picture.main_tid[safe])
    target_blocked = np.isin(_thread_key(edges.target, tid), blocked) & ~halted[safe]
    if len(picture.issuing_tid):  # who has issued nothing there yet will do so from the thread that issues elsewhere
        elsewhere = np.isin(_thread_key(edges.target, picture.issuing_tid[safe]), blocked) & ~halted[safe]
        target_blocked |= (edges.target_tid == 0) & elsewhere
    ends = ~target_blocked & (edges.target >= 0) & ~edges.either
    sinks = np.unique(edges.target[ends & edges.known])
    unseen = np.setdiff1d(np.unique(edges.target[ends & ~edges.known]), sinks)
    sure = len(sinks) == 0 and len(unseen) == 0
    cycle, explicit = _cycle(picture, edges, rows, demand) if sure else (np.empty(0, np.int64), False)
    return WaitGraph(
        edges=edges,
        waits=rows,
        demand=demand,
        waiting=np.flatnonzero(_table(picture.world_size, rank[usable])),
        sinks=sinks,
        unseen=unseen,
        sink_edge=_most_telling_edges(picture, edges, ends),
        cycle=cycle,
        cycle_explicit=explicit,
        stuck=np.sort(rows[~_table(int(demand.max(initial=-1)) + 1, edges.demand)[demand]]),
        overtaken=np.sort(rows[passed]),
    )


def edges_of(picture: Picture, rows: Ints) -> tuple[Edges, Ints, Ints]:
    """The edges that waits make, those waits sorted by their demand, and the demand of each.

    Args:
        picture: The job.
        rows: Rows of `Picture.waits`.
    """
    p2p = picture.waits["kind"][rows] >= SEND
    rounds, demand_of_rounds = _collective_edges(picture, rows[~p2p])
    first = int(demand_of_rounds.max(initial=-1)) + 1
    edges = _join(rounds, _p2p_edges(picture, rows[p2p], first))
    rows = np.concatenate((rows[~p2p], rows[p2p]))
    demand = np.concatenate((demand_of_rounds, first + np.arange(int(p2p.sum()))))
    order = np.argsort(demand, kind="stable")
    return edges, rows[order], demand[order]


def overtaken(picture: Picture, rows: Ints) -> Bools:
    """Which of these waits are on a round after which others have completed a later one of the same communicator?

    That one could not end without this rank either. So it has done its part, and only does not see the end. An
    all-to-all could: two members that have nothing for each other do not exchange anything. That all have nothing for
    one of many is not believed.

    Args:
        picture: The job.
        rows: Rows of `Picture.waits`.
    """
    waits = picture.waits[rows]
    synchronises = np.isin(waits["kind"], list(SYNCHRONISING))
    synchronises &= (waits["kind"] != Kind.ALL_TO_ALL) | (picture.comm_size[waits["comm"]] >= MANY)
    comms = np.unique(waits["comm"])
    of, member, _ = members(picture, comms)
    most = np.zeros(len(comms), np.int64)
    np.maximum.at(most, of, np.where(picture.member_seen[member], picture.member_done[member], 0))
    mine, _ = place(picture, waits["comm"], waits["rank"])
    done = most[np.searchsorted(comms, waits["comm"])]
    # What others have completed beyond what it has issued, they have completed since it was read.
    later = (done > waits["counter"]) & (done <= np.where(mine >= 0, picture.member_issued[mine], 0))
    return np.asarray(synchronises & later)


def waiters_of(picture: Picture, graph: WaitGraph, rank: int) -> Ints:
    """Ranks that wait for `rank` directly."""
    demands = graph.edges.demand[graph.edges.target == rank]
    return np.unique(picture.waits["rank"][graph.waits[np.isin(graph.demand, demands)]])


def waiting_for(picture: Picture, graph: WaitGraph, rank: int) -> dict[str, Any]:
    """Facts of the most telling wait for `rank`: the row of WAITS, and which ranks wait for it directly."""
    edge = graph.sink_edge[rank]
    return {
        "wait": picture.waits[graph.edges.wait[edge]],
        "entered": bool(graph.edges.entered[edge]),
        "waiters": waiters_of(picture, graph, rank),
    }


def _collective_edges(picture: Picture, rows: Ints) -> tuple[Edges, Ints]:
    """Edges of waits on collectives, each round expanded into its members; the demand of each row."""
    waits = picture.waits[rows]
    rounds, round_of = _rounds(waits["comm"], waits["counter"])
    longest, issued_s = _longest(waits, round_of, len(rounds))
    comm, counter = waits["comm"][longest], waits["counter"][longest]
    member_round, member, group_rank = members(picture, comm)
    rank = picture.member_rank[member]
    safe = np.maximum(rank, 0)
    entered = picture.member_issued[member] >= counter[member_round]
    late = np.flatnonzero(~entered & (rank >= 0))
    inside = _inside(picture, rounds, _table(picture.world_size, rank[late]))
    entered[late] = np.isin(_thread_key(member_round[late], rank[late]), inside)
    halted = (rank >= 0) & (picture.stopped[safe] | picture.gone[safe])
    holds = ~entered | (halted & (picture.member_done[member] < counter[member_round]))
    # Rooted operations: as long as the root keeps everybody, only the root does.
    kind = waits["kind"][longest]
    root = np.where(kind == Kind.MONITORED_BARRIER, 0, waits["peer"][longest])
    is_root = np.isin(kind, list(ROOTED))[member_round] & (group_rank == root[member_round])
    root_holds = np.zeros(len(rounds), np.bool_)
    root_holds[member_round[is_root & holds]] = True
    held = np.flatnonzero(holds & (~root_holds[member_round] | is_root))
    target, demand = rank[held], member_round[held]
    edges = Edges(
        demand=demand,
        wait=rows[longest][demand],
        target=target,
        target_tid=picture.member_tid[member[held]],
        entered=entered[held],
        known=_known(picture, target, issued_s[demand], picture.member_seen[member[held]]),
        either=np.zeros(len(held), np.bool_),
    )
    return edges, round_of


def _round_key(comm: Ints, counter: Ints) -> Ints:
    return np.asarray(comm << 32 | counter, np.int64)


def _rounds(comm: Ints, counter: Ints) -> tuple[Ints, Ints]:
    """The rounds, as sorted keys, and the round of each row."""
    keys, of = np.unique(_round_key(comm, counter), return_inverse=True)
    return keys, of.reshape(-1).astype(np.int64)


def _longest(waits: np.ndarray[Any, Any], round_of: Ints, rounds: int) -> tuple[Ints, Floats]:
    """For each round the row that waits longest, and when the first of its rows was issued."""
    order = np.lexsort((waits["since_s"], round_of))
    longest = order[np.searchsorted(round_of[order], np.arange(rounds))]
    issued_s = np.full(rounds, np.inf)
    np.minimum.at(issued_s, round_of, waits["issue_s"])
    return longest, issued_s


def members(picture: Picture, comm: Ints) -> tuple[Ints, Ints, Ints]:
    """Communicators expanded into their members: index in `comm`, row of the membership, group rank."""
    sizes = picture.comm_size[comm]
    of = np.repeat(np.arange(len(comm)), sizes)
    group_rank = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return of, picture.comm_at[comm][of] + group_rank, group_rank


def _inside(picture: Picture, rounds: Ints, which: Bools) -> Ints:
    """Which of these ranks are blocked or stopped in a round: they have entered, whatever counters said."""
    waits = picture.waits[which[picture.waits["rank"]] & (picture.waits["kind"] < SEND)]
    key = _round_key(waits["comm"], waits["counter"])
    at = np.minimum(np.searchsorted(rounds, key), max(len(rounds) - 1, 0))
    there = rounds[at] == key if len(rounds) else np.zeros(len(key), np.bool_)
    return _thread_key(at[there], waits["rank"][there])


def _known(picture: Picture, target: Ints, issued_s: Floats, seen: Bools) -> Bools:
    """Was the target's ring read, lately, after the first who waits had entered?"""
    safe = np.maximum(target, 0)
    read = (picture.read_after_s[safe] > issued_s) & picture.fresh[safe]
    present = (target >= 0) & picture.present[safe]
    return present & (seen | read) & (read | picture.gone[safe])


def _p2p_edges(picture: Picture, rows: Ints, first_demand: int) -> Edges:
    """Edges of waits on send/recv: a receive waits for its sender, a send (Gloo) for its receiver."""
    waits = picture.waits[rows]
    _, me = place(picture, waits["comm"], waits["rank"])
    any_source = waits["kind"] == RECV_ANY
    # One row per (wait, peer): the peer of the operation, or all other members.
    wait_any, peer_any = _everybody_else(picture, waits, np.flatnonzero(any_source), me)
    single = np.flatnonzero(~any_source & (waits["peer"] >= 0) & (waits["peer"] < picture.comm_size[waits["comm"]]))
    wait = np.concatenate((single, wait_any))
    peer = np.concatenate((waits["peer"][single], peer_any))
    reported = waits[wait]
    member = picture.comm_at[reported["comm"]] + peer
    target = picture.member_rank[member]
    counters = _PairCounters(picture)
    sends = reported["kind"] == SEND
    issued = counters.issued(reported["comm"], target, np.where(sends, RECV, SEND), me[wait], reported["tag"])
    reached = (reported["kind"] != RECV_ANY) & (issued >= reported["counter"])
    any_posted = counters.issued(
        reported["comm"], target, np.full(len(wait), RECV_ANY), np.full(len(wait), -1), reported["tag"]
    )
    reached |= sends & (any_posted > 0)
    safe = np.maximum(target, 0)
    keep = (target >= 0) & (target != reported["rank"]) & (~reached | picture.stopped[safe] | picture.gone[safe])
    wait, target, reported = wait[keep], target[keep], reported[keep]
    return Edges(
        demand=first_demand + wait,
        wait=rows[wait],
        target=target,
        target_tid=picture.member_tid[member[keep]],
        entered=reached[keep],
        known=_known(picture, target, reported["issue_s"], np.zeros(len(wait), np.bool_)),
        either=reported["kind"] == RECV_ANY,
    )


def place(picture: Picture, comm: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """Of ranks on communicators, the row of the membership and the group rank; -1 where it is no member."""
    comms = np.unique(comm)
    of, member, group_rank = members(picture, comms)
    if not len(of):
        return np.full(len(comm), -1), np.full(len(comm), -1)
    key = _thread_key(of, picture.member_rank[member])
    order = np.argsort(key, kind="stable")
    wanted = _thread_key(np.searchsorted(comms, comm), rank)
    at = order[np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)]
    is_member = key[at] == wanted
    return np.where(is_member, member[at], -1), np.where(is_member, group_rank[at], -1)


def _everybody_else(picture: Picture, waits: np.ndarray[Any, Any], which: Ints, me: Ints) -> tuple[Ints, Ints]:
    """(wait, group rank) of all members that a receive from any source may come from."""
    of, _, group_rank = members(picture, waits["comm"][which])
    other = group_rank != me[which][of]
    return which[of][other], group_rank[other]


class _PairCounters:
    """Issued send/recv by communicator, rank, kind, peer (group rank) and tag."""

    def __init__(self, picture: Picture) -> None:
        p = picture.pairs
        keys = _pair_key(p["comm"], p["rank"], p["kind"], p["peer"], p["tag"])
        order = np.lexsort((p["issued"], keys))
        self._keys, self._issued = keys[order], p["issued"][order]

    def issued(self, comm: Ints, rank: Ints, kind: Ints, peer: Ints, tag: Ints) -> Ints:
        """How many of each were issued; 0 where there is no such pair."""
        if not len(self._keys):
            return np.zeros(len(comm), np.int64)
        keys = _pair_key(comm, rank, kind, peer, tag)
        at = np.maximum(np.searchsorted(self._keys, keys, "right") - 1, 0)
        return np.where(self._keys[at] == keys, self._issued[at], 0)


def _pair_key(comm: Ints, rank: Ints, kind: Ints, peer: Ints, tag: Ints) -> NDArray[np.uint64]:
    key = mix(np.full(len(comm), 1, np.uint64), _thread_key(comm, rank))
    return mix(mix(key, _thread_key(kind, peer & 0xFFFFFFFF)), tag)


def _table(size: int, marked: Ints) -> Bools:
    table = np.zeros(size, np.bool_)
    table[marked] = True
    return table


def _join(a: Edges, b: Edges) -> Edges:
    return Edges(*(np.concatenate((getattr(a, name), getattr(b, name))) for name in Edges.__dataclass_fields__))


def _thread_key(rank: Ints, tid: Ints) -> Ints:
    return np.asarray(rank << 32 | tid & 0xFFFFFFFF, np.int64)


def _most_telling_edges(picture: Picture, edges: Edges, ends: Bools) -> dict[int, int]:
    """For each rank at the end of edges the one that says most."""
    at = np.flatnonzero(ends)
    order = at[np.lexsort((picture.waits["since_s"][edges.wait[at]], ~edges.entered[at], edges.target[at]))]
    target, first = np.unique(edges.target[order], return_index=True)
    return dict(zip(target.tolist(), order[first].tolist(), strict=True))


def _cycle(picture: Picture, edges: Edges, rows: Ints, demand: Ints) -> tuple[Ints, bool]:
    """Ranks that lie on a cycle: peel off, again and again, who waits for nobody left or for whom nobody waits."""
    rank = picture.waits["rank"][rows]
    demands = int(demand.max(initial=-1)) + 1
    alive_edge = ~edges.either & edges.known
    alive_wait = np.ones(len(rows), np.bool_)
    targeted = np.zeros(picture.world_size, np.bool_)
    waiting = np.zeros(picture.world_size, np.bool_)
    keeps = np.zeros(demands, np.bool_)
    asked = np.zeros(demands, np.bool_)
    before = -1
    while (left := int(alive_edge.sum()) + int(alive_wait.sum())) != before:
        before = left
        for table, index in (
            (targeted, edges.target[alive_edge]), (keeps, edges.demand[alive_edge]),
            (waiting, rank[alive_wait]), (asked, demand[alive_wait]),
        ):  # fmt: skip
            table[:] = False
            table[index] = True
        alive_wait &= targeted[rank] & keeps[demand]
        alive_edge &= waiting[edges.target] & asked[edges.demand]
    ranks = np.unique(rank[alive_wait])
    return ranks, bool(len(ranks)) and bool(picture.waits["explicit"][rows[alive_wait]].all())


def oldest_wait(picture: Picture, graph: WaitGraph) -> Any:
    """The wait of a graph that began first."""
    waits = picture.waits[graph.waits]
    return waits[int(np.argmin(waits["since_s"]))]
