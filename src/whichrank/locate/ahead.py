"""Ranks on a cycle of waits that came too early: they owe what most others in their round had done before.

Members of communicators of one description and size issue the same, each on its own. So a rank is held against those
who have entered the round in which it waits: if most of them had done elsewhere what others of the cycle wait for this
rank to do, it has gone ahead. Half of a large job may be on one cycle. So only members of a communicator are looked at
for what they owe there, and those who wait in one round are compared with the same others at once.

Example: ranks 0, 1 and 2 wait in the all-reduce of the job. Two of them have done 8 operations each on tensor-parallel
groups of two ranks, and rank 2 has done 7 where rank 3 waits in the eighth: rank 2 has gone ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whichrank.locate import waitgraph
from whichrank.model.picture import Bools, Ints, Picture

Rounds = tuple[Ints, Ints]
"""The communicator of each round, and the number of its operation there."""


def ahead_of_peers(picture: Picture, descriptions: Ints, waits: np.ndarray[Any, Any]) -> list[int]:
    """Ranks that have left undone what most other members of their round had done elsewhere before they entered it.

    Args:
        picture: The job.
        descriptions: By communicator, a number for its description and size, (C,).
        waits: Rows of WAITS of the ranks on the cycle, none of them in a message.
    """
    key, round_of = np.unique(waits["comm"] << 32 | waits["counter"], return_inverse=True)
    rounds = key >> 32, key & 0xFFFFFFFF
    wait, owed = _owing(picture, rounds, waits["rank"])
    entered = round_of.reshape(-1)[wait]
    elsewhere = rounds[0][entered] != rounds[0][owed]
    wait, owed, entered = wait[elsewhere], owed[elsewhere], entered[elsewhere]
    rank = waits["rank"][wait]
    what = descriptions[rounds[0]] << 32 | rounds[1]  # the same of rounds of sisters
    is_ahead = np.zeros(len(rank), np.bool_)
    for one in np.unique(what[owed]).tolist():
        at = np.flatnonzero(what[owed] == one)
        is_ahead[at] = _most_have_done(
            picture, descriptions == one >> 32, one & 0xFFFFFFFF, rounds, entered[at], rank[at]
        )
    found: list[int] = np.unique(rank[is_ahead]).tolist()
    return found


def _owing(picture: Picture, rounds: Rounds, rank: Ints) -> tuple[Ints, Ints]:
    """Who owes what: for each pair the place of a wait, and a round that its rank has not entered as a member.

    Args:
        picture: The job.
        rounds: In which ranks wait.
        rank: Of each wait, (n,).
    """
    owed, member, _ = waitgraph.members(picture, rounds[0])
    debtor = picture.member_rank[member]
    on_cycle = np.zeros(picture.world_size, np.bool_)
    on_cycle[rank] = True
    undone = (debtor >= 0) & on_cycle[debtor] & (picture.member_issued[member] < rounds[1][owed])
    owed, debtor = owed[undone], debtor[undone]
    order = np.argsort(rank, kind="stable")
    first = np.searchsorted(rank[order], debtor, "left")
    each = np.searchsorted(rank[order], debtor, "right") - first  # threads of it that wait
    within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
    return order[np.repeat(first, each) + within], np.repeat(owed, each)


def _most_have_done(picture: Picture, sisters: Bools, counter: int, rounds: Rounds, entered: Ints, rank: Ints) -> Bools:
    """Had most of those who have entered a round, but for this rank, come that far on some communicators?

    Args:
        picture: The job.
        sisters: By communicator, is it one of these?
        counter: How far.
        rounds: The same as for `_owing`.
        entered: Which of them each of some ranks waits in, (n,).
        rank: Which rank, (n,).
    """
    _, member, _ = waitgraph.members(picture, np.flatnonzero(sisters))
    member = member[picture.member_rank[member] >= 0]
    has_come = picture.member_issued[member] >= counter
    places = np.bincount(picture.member_rank[member], minlength=picture.world_size)  # that each rank has among sisters
    done = np.bincount(picture.member_rank[member[has_come]], minlength=picture.world_size)
    which, of = np.unique(entered, return_inverse=True)
    comm, number = rounds[0][which], rounds[1][which]
    in_round, member, _ = waitgraph.members(picture, comm)
    inside = (picture.member_issued[member] >= number[in_round]) & (picture.member_rank[member] >= 0)
    in_round, others = in_round[inside], picture.member_rank[member[inside]]
    own, _ = waitgraph.place(picture, comm[of], rank)
    is_counted = (own >= 0) & (picture.member_issued[own] >= number[of])
    all_places, all_done = (
        np.bincount(in_round, weights=of_rank[others], minlength=len(which))[of] - of_rank[rank] * is_counted
        for of_rank in (places, done)
    )
    return np.asarray((all_places > 1) & (2 * all_done > all_places))
