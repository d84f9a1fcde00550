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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from whichrank.locate.departures import departures
from whichrank.locate.messages import message_ends, sizes_differ
from whichrank.locate.splits import Misfit, misfit_rounds
from whichrank.model.clause import Witness
from whichrank.model.codes import UNNUMBERED, Flag
from whichrank.model.kinds import Kind, is_collective
from whichrank.model.picture import Bools, Ints, Picture
from whichrank.model.sequence import Edit, Tokens
from whichrank.model.signature import signatures

ASKED_OF_A_SIDE = 8
"""Ranks whose past is compared: more say nothing new."""
LEAST_TOGETHER, TOGETHER = 3, 0.75
"""Ranks, and share of a round's members, that do not all go wrong in the same way."""


@dataclass(frozen=True)
class Contradiction:
    """One round in which members issued operations that cannot meet."""

    comm: int
    counter: int
    ops: np.ndarray[Any, Any]
    """Rows of OPS, shape (R,): what each member issued, in flight, failed or complete."""
    sides: tuple[int, ...]
    """Which signature each rank has: equal numbers agree."""
    misfits: tuple[Misfit, ...] = ()
    """Of an all-to-all whose sizes do not fit: some of the pairs."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The members, beside `ops` and `sides`."""
        return tuple(self.ops["rank"].tolist())


class CompletedRounds(Protocol):
    """What members issued in rounds that they have completed."""

    def differ(self, comm: Ints, counter: Ints, sign: NDArray[np.uint64]) -> Bools:
        """Which of these operations are not what the first member that completed the same round had issued."""

    def ops_of(self, picture: Picture, comm: int, counter: int) -> np.ndarray[Any, Any]:
        """Rows of OPS: what each member issued that has completed this round."""


def contradictions(picture: Picture, completed: CompletedRounds | None = None) -> list[Contradiction]:
    """Rounds whose operations differ in what all members must agree on, some of them in flight or failed.

    Sizes that differ need not keep every member from completing: a ring of four lets those go on whose neighbours
    happen to send no more than they take. So what is in flight is held against what others have completed as well.

    Args:
        picture: The job.
        completed: Knows the latest rounds that members have completed.
    """
    ops = picture.ops
    collective = np.flatnonzero(is_collective(ops["kind"]) & (ops["counter"] > 0))
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
        suspicious = low != high
        if completed:
            suspicious[round_of[completed.differ(rows["comm"], rows["counter"], sign)]] = True
        for r in np.flatnonzero(suspicious):
            comm, counter = (int(k) for k in rounds[r])
            issued = with_completed(picture, rows[round_of == r], comm, counter, completed)
            sides = sides_of(issued)
            if sides.any():
                found.append(Contradiction(comm, counter, issued, tuple(sides.tolist())))
    return found + _misfits(picture, completed, {(c.comm, c.counter) for c in found}) + _message_contradictions(picture)


def with_completed(
    picture: Picture, rows: np.ndarray[Any, Any], comm: int, counter: int, completed: CompletedRounds | None
) -> np.ndarray[Any, Any]:
    """Operations of one round that are in flight or failed, and those of members that have completed it."""
    if not completed:
        return rows
    done = completed.ops_of(picture, comm, counter)
    return np.concatenate((rows, done[~np.isin(done["rank"], rows["rank"])]))


def sides_of(rows: np.ndarray[Any, Any]) -> Ints:
    """Which of the operations of one round agree: equal numbers do; all 0 where nothing contradicts.

    An all-to-all that says for each member how much it sends may meet one that says it once for all: their sizes are
    compared pair by pair, not here.
    """
    flags = rows["flags"].copy()
    is_exchange = rows["kind"] == Kind.ALL_TO_ALL
    if (flags[is_exchange] & Flag.UNEVEN).any():
        flags[is_exchange] |= Flag.UNEVEN
    rows = rows.copy()
    rows["flags"] = flags
    sign = signatures(rows)
    sides: Ints = np.unique(sign, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return sides


def _misfits(picture: Picture, completed: CompletedRounds | None, known: set[tuple[int, int]]) -> list[Contradiction]:
    """All-to-alls under way in which what one member sends is not what another expects."""
    found = []
    for one in misfit_rounds(picture):
        at = (picture.ops["comm"] == one.comm) & (picture.ops["counter"] == one.counter)
        rows = picture.ops[at & (picture.ops["kind"] == Kind.ALL_TO_ALL)]
        if (one.comm, one.counter) in known or not len(rows):
            continue
        side = dict(zip(one.ranks, one.sides, strict=True))
        issued = with_completed(picture, rows, one.comm, one.counter, completed)
        issued = issued[np.isin(issued["rank"], one.ranks)]
        sides = tuple(side[r] for r in issued["rank"].tolist())
        if len(set(sides)) > 1:
            found.append(Contradiction(one.comm, one.counter, issued, sides, one.pairs))
    return found


def _message_contradictions(picture: Picture) -> list[Contradiction]:
    """Sends whose receiver expects another size."""
    return [
        Contradiction(m.comm, m.number, picture.ops[[rows[int(Kind.SEND)], rows[int(Kind.RECV)]]], (0, 1))
        for m, rows in message_ends(picture).items()
        if m.number < UNNUMBERED and sizes_differ(picture, rows)  # else the ends may be of two messages
    ]


@dataclass(frozen=True)
class Deviation:
    """Who deviates in a contradiction, and which witnesses say so."""

    deviants: tuple[int, ...]
    witnesses: tuple[Witness, ...]


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
        Witness.OWN_PAST: against_past,
        Witness.SAME_ROLE: frozenset(
            r for r, s in zip(ranks, sides, strict=True) if sister_side is not None and s != sister_side
        ),
    }
    if len(ranks) >= 3:
        values, counts = np.unique(np.array(sides), return_counts=True)
        if counts.max() * 2 > len(ranks) and len(values) > 1:
            major = int(values[counts.argmax()])
            verdicts[Witness.MAJORITY] = frozenset(r for r, s in zip(ranks, sides, strict=True) if s != major)
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
        of_rank = departures(x[len(x) - common :])
        if of_rank is None:
            return frozenset()
        found[rank] = frozenset((shape(a), shape(b)) for a, b in of_rank.own)
        # New to one for the second time is usual for it, and no less shared with those for whom it was new once.
        once.append(frozenset((shape(a), shape(b)) for a, b in of_rank.ever))
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
    witness: Witness = Witness.MEMBERS_AND_PAST


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
