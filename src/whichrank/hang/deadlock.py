"""Ranks that wait for each other in a cycle (DESIGN 5.2): who entered its operation too early, or one too many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from whichrank.hang.case import LISTED, Case
from whichrank.hang.cycle import Cycle, cycle_of, descriptions_of
from whichrank.locate import waitgraph
from whichrank.locate.ahead import ahead_of_peers
from whichrank.locate.departures import expected
from whichrank.locate.signatures import departed
from whichrank.locate.strays import LEAST_ALIKE
from whichrank.model.clause import Clause, Says, Witness, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.kinds import is_collective, is_message
from whichrank.model.picture import Ints, Picture
from whichrank.model.sequence import Tokens


def deadlock(case: Case, picture: Picture, graph: waitgraph.WaitGraph) -> Finding:
    """Who entered too early, or one too many, if that can be said; else the ranks of the cycle."""
    ranks = [int(r) for r in graph.cycle]
    rows = picture.waits[np.isin(picture.waits["rank"], ranks)]
    picture = replace(picture, ops=picture.ops[np.isin(picture.ops["rank"], ranks)])
    skewed = sorted({r for comm in np.unique(rows["comm"]) for r in case.skews.skewed(int(comm))} & set(ranks))
    descriptions = descriptions_of(case)
    cycle = cycle_of(case, picture, descriptions, rows)
    wrong, witness = (
        (skewed, Witness.EARLIER_OPERATIONS) if skewed else _out_of_order(case, picture, descriptions, cycle)
    )
    is_extra = False
    if not wrong and (alone := _alone(case, cycle)):
        wrong, witness, is_extra = [alone[0]], Witness.ALL_OTHERS, alone[1]
    listed = list(dict.fromkeys(rows["rank"].tolist()))[:LISTED]
    said = {int(w["rank"]): case.op_on(w) for w in rows[np.isin(rows["rank"], [*listed, *ranks[:LISTED], *wrong])]}
    evidence = tuple(Evidence(what="blocked on", value=said[rank], where=f"rank {rank}") for rank in listed)
    blames = tuple(Blame(r, 0.9, (_wrong_order(said, r, witness),)) for r in wrong)
    certain = graph.cycle_explicit and len(wrong) < len(ranks) and bool(wrong)
    # Against the order of the communicator's own operations: one too many or too few, not two in opposite order.
    extra = certain and (is_extra or all(_departs_on_its_group(case, cycle, r) for r in wrong))
    cause = Cause.INCONSISTENT if extra else Cause.DEADLOCK
    return Finding(
        cause=cause if graph.cycle_explicit else Cause.UNKNOWN,
        fault_class="H2" if graph.cycle_explicit else None,
        culprits=blames if certain else (),
        candidates=()
        if graph.cycle_explicit
        else tuple(Blame(r, 1 / len(ranks), (clause(Says.BLOCKED_ON, op=said[r]),)) for r in ranks[:LISTED]),
        comm=int(rows["comm"][0]),
        op=case.op_of(rows[0]),
        victims=tuple(graph.waiting[~np.isin(graph.waiting, wrong)].tolist()),
        onset_s=float(rows["since_s"].max()),
        hard=graph.cycle_explicit,
        evidence=evidence,
        complete=case.complete(picture),
    )


def _wrong_order(said: dict[int, str], rank: int, witness: Witness) -> Clause:
    """What a rank of the cycle has entered too early, and what not yet."""
    others, order = [other for other in said if other != rank], (witness, rank)
    if len(others) == 1:
        waiting = (others[0],)
        return clause(Says.WRONG_ORDER, entered=said[rank], owed=said[others[0]], waiting=waiting, order=order)
    return clause(Says.WRONG_ORDER_TO_PEERS, entered=said[rank], order=order)


def _up_to(case: Case, cycle: Cycle, at: int) -> Tokens:
    """The tokens of a rank up to and with the operation in which it waits."""
    return case.store.sequences.up_to(int(cycle.ranks[at]), int(cycle.ordinals[at]))


def _alone(case: Case, cycle: Cycle) -> tuple[int, bool] | None:
    """The one rank on a cycle that waits in a collective where all others went on with something else.

    Returns:
        It, and whether it left out or added operations.
    """
    is_extra: dict[int, bool] = {}

    def left_alone(asked: Ints) -> Ints:
        found = []
        for at in asked[is_collective(cycle.waits["kind"][asked]) & (cycle.ordinals[asked] >= 0)].tolist():
            rank = int(cycle.ranks[at])
            extra = case.peers.leaves_alone(rank, int(cycle.ordinals[at]))
            if extra is not None:
                is_extra[rank] = extra
                found.append(at)
        return np.array(found, np.int64)

    cycle.find(left_alone)
    return next(iter(is_extra.items())) if len(is_extra) == 1 else None


def _departs_on_its_group(case: Case, cycle: Cycle, rank: int) -> bool:
    """Would a rank's operation be a departure even if its communicator were the only one?"""
    for at in np.flatnonzero((cycle.ranks == rank) & (cycle.ordinals >= 0)).tolist():
        x = _up_to(case, cycle, at)
        if not len(x):
            continue
        of_group = case.store.sequences.are_of_one(x, int(x[-1]))
        allowed, length = expected(x[of_group][:-1])
        if length and int(x[-1]) not in allowed:
            return True
    return False


def _out_of_order(case: Case, picture: Picture, descriptions: Ints, cycle: Cycle) -> tuple[list[int], Witness]:
    """Who on a cycle entered its operation too early, and the witness: its own past, else its peers' progress."""
    own = _departed(case, cycle)
    peers = ahead_of_peers(picture, descriptions, cycle.waits[~is_message(cycle.waits["kind"])])
    strays = _strays(case, cycle)
    both = sorted(set(own) & set(strays)) if own and strays else own or strays
    if (both and peers and both != peers) or ((own or strays) and not both):
        return [], Witness.MEMBERS
    if not _alike(cycle.waits[np.isin(cycle.ranks, both)]):
        return [], Witness.MEMBERS
    if both:
        return both, Witness.OWN_PAST if own else Witness.SAME_POSITION
    return peers, Witness.MEMBERS


def _departed(case: Case, cycle: Cycle) -> list[int]:
    """Ranks that departed from their own past; nobody if it is not known of all in which operation they wait."""
    in_flight = cycle.ordinals >= 0
    if len(np.setdiff1d(cycle.ranks, cycle.ranks[in_flight])):
        return []

    def found_among(asked: Ints) -> Ints:
        tokens = {int(cycle.ranks[at]): _up_to(case, cycle, at) for at in asked[in_flight[asked]].tolist()}
        found = departed(tokens, case.store.sequences.shape_of)
        return asked[np.isin(cycle.ranks[asked], list(found))]

    found: list[int] = np.unique(cycle.ranks[cycle.find(found_among)]).tolist()
    return found


def _strays(case: Case, cycle: Cycle) -> list[int]:
    """Ranks that have issued too many operations or too few, as those in the same position say."""

    def found_among(asked: Ints) -> Ints:
        is_stray = [case.peers.skew_of(rank, LEAST_ALIKE) is not None for rank in cycle.ranks[asked].tolist()]
        return asked[np.array(is_stray, np.bool_)]

    found: list[int] = np.unique(cycle.ranks[cycle.find(found_among)]).tolist()
    return found


def _alike(waits: Any) -> bool:
    """Do these wait on the same, by kind and communicator? Ranks that departed in several ways share no mistake."""
    return len(np.unique(np.stack((waits["kind"], waits["comm"])), axis=1).T) <= 1
