"""Ranks that wait for each other in a cycle (DESIGN 5.2): who entered its operation too early, or one too many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from whichrank.hang.case import LISTED, Case
from whichrank.locate import waitgraph
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
    wrong, witness = (skewed, Witness.EARLIER_OPERATIONS) if skewed else _out_of_order(case, picture, rows)
    is_extra = False
    if not wrong and (alone := _alone(case, picture, rows)):
        wrong, witness, is_extra = [alone[0]], Witness.ALL_OTHERS, alone[1]
    said = {int(w["rank"]): case.op_on(w) for w in rows}
    evidence = tuple(
        Evidence(what="blocked on", value=words, where=f"rank {rank}") for rank, words in list(said.items())[:LISTED]
    )
    blames = tuple(Blame(r, 0.9, (_wrong_order(said, r, witness),)) for r in wrong)
    certain = graph.cycle_explicit and len(wrong) < len(ranks) and bool(wrong)
    # Against the order of the communicator's own operations: one too many or too few, not two in opposite order.
    extra = certain and (is_extra or all(_departs_on_its_group(case, picture, rows[rows["rank"] == r]) for r in wrong))
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


def _ordinal_of(picture: Picture, wait: Any) -> int | None:
    """The number of the operation that a rank waits on among all of its own, None if that is not in flight."""
    ops = picture.ops
    at = np.flatnonzero(
        (ops["rank"] == wait["rank"]) & (ops["comm"] == wait["comm"]) & (ops["counter"] == wait["counter"])
        & (ops["kind"] == wait["kind"]) & (ops["peer"] == wait["peer"])
    )  # fmt: skip
    return int(ops["ordinal"][at[0]]) if len(at) else None


def _up_to(case: Case, picture: Picture, wait: Any) -> Tokens | None:
    """The tokens of a rank up to and with the operation that it waits on, None if that is not in flight."""
    ordinal = _ordinal_of(picture, wait)
    return None if ordinal is None else case.store.sequences.up_to(int(wait["rank"]), ordinal)


def _alone(case: Case, picture: Picture, waits: Any) -> tuple[int, bool] | None:
    """The one rank on a cycle that waits in a collective where all others went on with something else.

    Returns:
        It, and whether it left out or added operations.
    """
    found = {}
    for wait in waits[is_collective(waits["kind"])]:
        ordinal = _ordinal_of(picture, wait)
        is_extra = None if ordinal is None else case.peers.leaves_alone(int(wait["rank"]), ordinal)
        if is_extra is not None:
            found[int(wait["rank"])] = is_extra
    return next(iter(found.items())) if len(found) == 1 else None


def _departs_on_its_group(case: Case, picture: Picture, waits: Any) -> bool:
    """Would a rank's operation be a departure even if its communicator were the only one?"""
    for wait in waits:
        x = _up_to(case, picture, wait)
        if x is None or not len(x):
            continue
        of_group = case.store.sequences.are_of_one(x, int(x[-1]))
        allowed, length = expected(x[of_group][:-1])
        if length and int(x[-1]) not in allowed:
            return True
    return False


def _out_of_order(case: Case, picture: Picture, waits: Any) -> tuple[list[int], Witness]:
    """Who on a cycle entered its operation too early, and the witness: its own past, else its peers' progress."""
    tokens = {}
    for wait in waits:
        x = _up_to(case, picture, wait)
        if x is not None:
            tokens[int(wait["rank"])] = x
    ranks = set(waits["rank"].tolist())
    own = sorted(departed(tokens, case.store.sequences.shape_of)) if len(tokens) == len(ranks) else []
    peers = _ahead_of_peers(case, picture, waits)
    strays = sorted(r for r in ranks if case.peers.skew_of(r, LEAST_ALIKE))
    both = sorted(set(own) & set(strays)) if own and strays else own or strays
    if (both and peers and both != peers) or ((own or strays) and not both):
        return [], Witness.MEMBERS
    if not _alike(waits[np.isin(waits["rank"], both)]):
        return [], Witness.MEMBERS
    if both:
        return both, Witness.OWN_PAST if own else Witness.SAME_POSITION
    return peers, Witness.MEMBERS


def _ahead_of_peers(case: Case, picture: Picture, cycle: Any) -> list[int]:
    """Ranks that have left undone what most other members of their round had done elsewhere before they entered it."""
    cycle = cycle[~is_message(cycle["kind"])]
    # Each rank of the cycle with each operation that another waits on there: is it a member, and has not entered it?
    mine, owed = (at.reshape(-1) for at in np.indices((len(cycle), len(cycle))))
    member, _ = waitgraph.place(picture, cycle["comm"][owed], cycle["rank"][mine])
    undone = (member >= 0) & (picture.member_issued[member] < cycle["counter"][owed])
    undone &= cycle["comm"][mine] != cycle["comm"][owed]
    sisters = _Sisters(case, picture)
    found = {
        int(cycle["rank"][i])
        for i, j in zip(mine[undone].tolist(), owed[undone].tolist(), strict=True)
        if sisters.have_done(cycle[i], cycle[j])
    }
    return sorted(found)


class _Sisters:
    """Members of communicators of one description and size: they issue the same, each on its own."""

    def __init__(self, case: Case, picture: Picture) -> None:
        self._picture = picture
        self._kind = [(c.desc, c.size) for c in case.store.comms.info]
        self._members: dict[tuple[str, int], Ints] = {}

    def have_done(self, entered: Any, owed: Any) -> bool:
        """Had most of those who have entered one operation done another before, on their own communicators?

        Args:
            entered: Row of WAITS of a rank, which does not count itself.
            owed: Row of WAITS.
        """
        p = self._picture
        at, size = int(p.comm_at[entered["comm"]]), int(p.comm_size[entered["comm"]])
        ranks = p.member_rank[at : at + size]
        others = ranks[(p.member_issued[at : at + size] >= entered["counter"]) & (ranks != entered["rank"])]
        there = self._of(int(owed["comm"]))
        there = there[np.isin(p.member_rank[there], others[others >= 0])]
        done = p.member_issued[there] >= owed["counter"]
        return len(done) > 1 and 2 * int(done.sum()) > len(done)

    def _of(self, comm: int) -> Ints:
        """Rows of the memberships of a communicator and its sisters."""
        kind = self._kind[comm]
        if kind not in self._members:
            comms = [i for i, other in enumerate(self._kind) if other == kind]
            at = self._picture.comm_at[comms]
            self._members[kind] = (at[:, None] + np.arange(kind[1])).reshape(-1)
        return self._members[kind]


def _alike(waits: Any) -> bool:
    """Do these wait on the same, by kind and communicator? Ranks that departed in several ways share no mistake."""
    return len(np.unique(np.stack((waits["kind"], waits["comm"])), axis=1).T) <= 1
