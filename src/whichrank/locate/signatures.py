"""What the members of a round issued: contradictions, and who deviates.

Two members of one communicator whose n-th operations differ contradict each other, whatever hangs or does not. Which of
them is wrong is another question: with two members there is no majority, and with more the majority may be the
side that follows the deviant. So the witnesses are asked in this order (DESIGN 5.2, question 3): each rank's own
earlier iterations, communicators of the same role elsewhere, the majority if there are three or more. If two of them
disagree, everybody concerned is a candidate and nobody is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.locate.departures import departures
from whichrank.locate.messages import message_ends, sizes_differ
from whichrank.model.picture import Picture
from whichrank.model.rows import UNNUMBERED, Flag, Kind
from whichrank.model.sequence import Edit, Tokens
from whichrank.model.signature import signatures

ASKED_OF_A_SIDE = 8
LEAST_TOGETHER, TOGETHER = 5, 0.75
"""Ranks, and share of a round's members, that do not all go wrong in the same way."""


@dataclass(frozen=True)
class Contradiction:
    """One round in which members issued operations that cannot meet."""

    comm: int
    counter: int
    ranks: tuple[int, ...]
    rows: tuple[int, ...]
    """Rows of `Picture.ops`, beside `ranks`."""
    sides: tuple[int, ...]
    """Which signature each rank has: equal numbers agree."""


def contradictions(picture: Picture) -> list[Contradiction]:
    """Rounds whose operations, in flight or failed, differ in what all members must agree on."""
    ops = picture.ops
    collective = np.flatnonzero((ops["kind"] < Kind.SEND) & (ops["counter"] > 0))
    found: list[Contradiction] = []
    if len(collective):
        rows = ops[collective]
        key = np.stack((rows["comm"], rows["counter"]), axis=1)
        rounds, round_of = np.unique(key, axis=0, return_inverse=True)
        round_of = round_of.reshape(-1)
        sign = signatures(rows)
        low = np.full(len(rounds), np.iinfo(np.uint64).max, np.uint64)
        high = np.zeros(len(rounds), np.uint64)
        np.minimum.at(low, round_of, sign)
        np.maximum.at(high, round_of, sign)
        uneven = np.zeros(len(rounds), np.bool_)
        np.logical_or.at(uneven, round_of, (rows["flags"] & Flag.UNEVEN) != 0)
        for r in np.flatnonzero((low != high) | uneven):
            at = np.flatnonzero(round_of == r)
            if low[r] != high[r]:
                sides = np.unique(sign[at], return_inverse=True)[1].reshape(-1)
            else:
                sides = _split_sides(picture, rows[at])
            if len(set(sides.tolist())) > 1:
                found.append(_contradiction(rounds[r], ops, collective[at], sides))
    return found + _message_contradictions(picture)


def _message_contradictions(picture: Picture) -> list[Contradiction]:
    """Sends whose receiver expects another size."""
    return [
        Contradiction(m.comm, m.number, (m.sender, m.receiver), (rows[int(Kind.SEND)], rows[int(Kind.RECV)]), (0, 1))
        for m, rows in message_ends(picture).items()
        if m.number < UNNUMBERED and sizes_differ(picture, rows)  # else the ends may be of two messages
    ]


def _contradiction(
    round_key: NDArray[Any], ops: np.ndarray[Any, Any], at: NDArray[np.int64], sides: NDArray[Any]
) -> Contradiction:
    return Contradiction(
        int(round_key[0]),
        int(round_key[1]),
        tuple(ops["rank"][at].tolist()),
        tuple(at.tolist()),
        tuple(int(s) for s in sides),
    )


def _split_sides(picture: Picture, rows: np.ndarray[Any, Any]) -> NDArray[np.int64]:
    """Uneven all-to-all: what i sends to j must be what j expects of i. One side per rank that fits nobody else."""
    if not rows["splits"].any():
        return np.zeros(len(rows), np.int64)
    comm = int(rows["comm"][0])
    at = {int(picture.member_rank[picture.comm_at[comm] + g]): g for g in range(int(picture.comm_size[comm]))}
    sides = np.zeros(len(rows), np.int64)
    wrong = np.zeros(len(rows), np.int64)
    for i, mine in enumerate(rows):
        for j, other in enumerate(rows):
            me, peer = at.get(int(mine["rank"]), 99), at.get(int(other["rank"]), 99)
            if peer < mine["splits"] and me < other["splits"] and mine["split_in"][peer] != other["split_out"][me]:
                wrong[i] += 1
                wrong[j] += 1
    if wrong.any():
        sides[wrong == wrong.max()] = 1
    return sides


@dataclass(frozen=True)
class Deviation:
    """Who deviates in a contradiction, and which witnesses say so."""

    deviants: tuple[int, ...]
    witnesses: tuple[str, ...]


def deviants(
    ranks: Sequence[int],
    sides: Sequence[int],
    up_to: Callable[[int], Tokens],
    shape: Callable[[int], int],
    sister_side: int | None,
) -> Deviation:
    """The ranks that deviate; empty if the witnesses disagree or say nothing.

    Args:
        ranks: Members whose operation of this round is known.
        sides: Their signatures, equal numbers agree.
        up_to: For a rank, its tokens up to and with this operation.
        shape: See `departed`.
        sister_side: The side that communicators of the same role are on in this round, None if they say nothing.
    """
    asked = _some_of_each(sides)
    own = departed({ranks[i]: up_to(ranks[i]) for i in asked}, shape)
    wrong = _whole_sides([ranks[i] for i in asked], [sides[i] for i in asked], own)
    against_past = frozenset(r for r, s in zip(ranks, sides, strict=True) if s in wrong)
    if len(against_past) >= max(LEAST_TOGETHER, TOGETHER * len(ranks)):
        against_past = frozenset()  # what nearly all do for the first time is the program's doing
    verdicts = {
        "its own earlier iterations": against_past,
        "communicators of the same role": frozenset(
            r for r, s in zip(ranks, sides, strict=True) if sister_side is not None and s != sister_side
        ),
    }
    if len(ranks) >= 3:
        values, counts = np.unique(np.array(sides), return_counts=True)
        if counts.max() * 2 > len(ranks) and len(values) > 1:
            major = int(values[counts.argmax()])
            verdicts["the majority"] = frozenset(r for r, s in zip(ranks, sides, strict=True) if s != major)
    verdicts = {name: who for name, who in verdicts.items() if who and len(who) < len(ranks)}
    if not verdicts or len(set(verdicts.values())) > 1:
        return Deviation((), ())
    return Deviation(tuple(sorted(next(iter(verdicts.values())))), tuple(verdicts))


def departed(tokens: Mapping[int, Tokens], shape: Callable[[int], int]) -> frozenset[int]:
    """Ranks that have lately departed from their own past in a way that not all of these ranks share.

    What all share (an evaluation, a log line every ten iterations) is the program's doing. Nobody is named if the past
    of one of them says nothing.

    Args:
        tokens: By rank, its tokens up to and with the operation in question.
        shape: Token -> what it is on any communicator of that role: members of different groups share that.
    """
    found: dict[int, frozenset[tuple[int, int]]] = {}
    once: list[frozenset[tuple[int, int]]] = []
    # With a longer past more is known to be usual (a rare log line), so all are asked about equally long ones.
    common = min((len(x) for x in tokens.values()), default=0)
    for rank, x in tokens.items():
        own, ever = (departures(x[len(x) - common :], usual_since=usual) for usual in (False, True))
        if own is None or ever is None:
            return frozenset()
        found[rank] = frozenset((shape(a), shape(b)) for a, b in own)
        # New to one for the second time is usual for it, and no less shared with those for whom it was new once.
        once.append(frozenset((shape(a), shape(b)) for a, b in ever))
    shared = frozenset.intersection(*once) if once else frozenset()
    return frozenset(rank for rank, own in found.items() if own - shared)


def _some_of_each(sides: Sequence[int]) -> list[int]:
    """Places of a few ranks of each side: they issued the same, and asking all of a large group takes long."""
    places: dict[int, list[int]] = {}
    for place, side in enumerate(sides):
        places.setdefault(side, []).append(place)
    return sorted(place for of_side in places.values() for place in of_side[:ASKED_OF_A_SIDE])


def _whole_sides(ranks: Sequence[int], sides: Sequence[int], who: frozenset[int]) -> set[int]:
    """The sides of `who`, if none has both a rank that departed and one that did not."""
    inside = {s for r, s in zip(ranks, sides, strict=True) if r in who}
    outside = {s for r, s in zip(ranks, sides, strict=True) if r not in who}
    return set() if inside & outside else inside


@dataclass(frozen=True)
class Skew:
    """A rank that left out or repeated an operation of a communicator, and went on."""

    rank: int
    comm_key: int
    edit: Edit
    iterations_since: int
    witness: str = "its own earlier iterations"


def confirm_skew(
    rank: int,
    edit: Edit,
    tokens_since: int,
    comm_of: Callable[[int], int],
    members_of: Callable[[int], Sequence[int]],
    edits_of: Callable[[int], tuple[Sequence[Edit], int] | None],
    per_iteration: Callable[[int, int], int],
    has_passed: Callable[[int, int], bool],
    iterations: int = 3,
) -> Skew | None:
    """Is this edit a skew: alone among the members of its communicator, and lasting?

    Args:
        rank: The rank with the edit.
        edit: Its departure from its own iterations.
        tokens_since: Operations of this rank since the edit.
        comm_of: Token -> communicator (a key that survives re-initialisation), -1 for send/recv.
        members_of: Communicator -> ranks.
        edits_of: Rank -> its edits, of another rank only those that this one has not had in the same place, and the
            operations that its period has explained; None if it is not known.
        per_iteration: Rank, communicator -> its operations there in one period.
        has_passed: Communicator, rank -> it was seen where this rank was when its edit had lasted.
        iterations: How many iterations the skew must last.
    """
    tokens = edit.missing + edit.extra
    comms = {comm_of(t) for t in tokens}
    if len(comms) != 1 or -1 in comms or tokens_since < iterations * edit.period:
        return None
    comm = comms.pop()
    others = [m for m in members_of(comm) if m != rank]
    mine = edits_of(rank)
    usual = per_iteration(rank, comm)
    # Where members count differently, one of the periods is a loop inside the iteration, and says nothing here.
    if not others or mine is None or not usual or any(per_iteration(other, comm) != usual for other in others):
        return None
    if sum((e.missing, e.extra) == (edit.missing, edit.extra) for e in mine[0]) > 1:
        return None  # it recurs: that is how the program is
    for later in mine[0]:
        if (
            later is not edit
            and sorted(later.extra) == sorted(edit.missing)
            and sorted(later.missing) == sorted(edit.extra)
        ):
            return None  # made up for
    near = [e for e in mine[0] if e is not edit and abs(e.ordinal - edit.ordinal) <= 2 * edit.period]
    if near and sum(len(e.extra) - len(e.missing) for e in (edit, *near)) % edit.period == 0:
        return None  # none is left out or done twice in all: they were done in another order
    for other in others:
        theirs = edits_of(other)
        if theirs is None or theirs[1] < (iterations + 1) * edit.period or not has_passed(comm, other):
            return None  # cannot say what it did meanwhile
        if any(comm in {comm_of(t) for t in e.missing + e.extra} for e in theirs[0]):
            return None  # it changed too: the program does so
    return Skew(rank, comm, edit, tokens_since // edit.period)
