"""All-to-alls whose sizes differ from member to member: what one sends must be what the other expects.

Such operations have no signature that all members share, and in expert parallelism their sizes differ each time. A rank
that left one out meets its peers with the sizes of the next one: what it sends fits nobody, and what it expects comes
from nobody, while all others still fit each other. So each pair is compared, and the odd one is the rank without which
all pairs fit. Example: of four members, rank 2 left one out. Five pairs do not fit, and all of them are with rank 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whichrank.model.picture import Ints, Picture

PAIRS_LISTED = 8
"""Pairs that do not fit, in the answer: the first ones say enough."""
LEAST_PARTNERS = 2
"""One pair that does not fit has two ends, and either may be wrong."""


@dataclass(frozen=True)
class Misfit:
    """A pair of ranks of which one sends what the other does not expect, in elements."""

    src: int
    dst: int
    sent: int
    expected: int


@dataclass(frozen=True)
class MisfitRound:
    """An all-to-all in which some pairs do not fit.

    Attributes:
        ranks: Members that may be wrong, and those that witness it.
        sides: Beside `ranks`, equal numbers agree: the odd one is alone, or nobody can say who it is.
        pairs: Some of the pairs that do not fit.
    """

    comm: int
    counter: int
    ranks: tuple[int, ...]
    sides: tuple[int, ...]
    pairs: tuple[Misfit, ...]


def misfit_rounds(picture: Picture) -> list[MisfitRound]:
    """The all-to-alls in which some pairs do not fit, those begun first at the front."""
    rows = picture.splits
    if len(rows) < 2:
        return []
    order = np.lexsort((rows["rank"], rows["counter"], rows["comm"]))
    rows = rows[order]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (rows["comm"][1:] != rows["comm"][:-1]) | (rows["counter"][1:] != rows["counter"][:-1])
    starts = np.flatnonzero(is_first)
    found = []
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
        if end - start > 1 and (one := _misfit(picture, rows[start:end])):
            found.append(one)
    return sorted(found, key=lambda one: (one.counter, one.comm))


def _misfit(picture: Picture, rows: np.ndarray[tuple[int], np.dtype[np.void]]) -> MisfitRound | None:
    """What does not fit in one round, given the rows of its members, ordered by rank."""
    comm, ranks = int(rows["comm"][0]), rows["rank"]
    at, size = int(picture.comm_at[comm]), int(picture.comm_size[comm])
    members = picture.member_rank[at : at + size]
    by_rank = np.argsort(members)
    place = by_rank[np.minimum(np.searchsorted(members[by_rank], ranks), size - 1)]
    known = members[place] == ranks
    rows, ranks, place = rows[known], ranks[known], place[known]
    sends, expects = _whole(rows, "split_in", "count", size), _whole(rows, "split_out", "out_count", size)
    sent, expected = sends[:, place], expects[:, place].T  # of (i, j): what i sends to j, what j expects of i
    apart = (sent != expected) & (sent >= 0) & (expected >= 0)
    if not apart.any():
        return None
    either = apart | apart.T
    partners = either.sum(axis=1)
    of_each = 2 * partners - either.diagonal()  # pairs that do not fit, both ways, with each member in them
    alone = np.flatnonzero((partners >= LEAST_PARTNERS) & (of_each == either.sum()))
    if len(alone) == 1:
        sides = (np.arange(len(ranks)) == alone[0]).astype(np.int64)
        concerned = np.arange(len(ranks))
    else:
        concerned = np.flatnonzero(partners)
        sides = np.arange(len(concerned))
    pairs = tuple(
        Misfit(int(ranks[i]), int(ranks[j]), int(sent[i, j]), int(expected[i, j]))
        for i, j in np.argwhere(apart)[:PAIRS_LISTED].tolist()
    )
    counter = int(rows["counter"][0])
    return MisfitRound(comm, counter, tuple(ranks[concerned].tolist()), tuple(sides.tolist()), pairs)


def _whole(rows: np.ndarray[tuple[int], np.dtype[np.void]], name: str, total: str, size: int) -> Ints:
    """Elements for each member, shape (len(rows), size); -1 where it is not known."""
    kept: NDArray[np.int64] = rows[name].astype(np.int64)
    whole = np.full((len(rows), size), -1, np.int64)
    width = min(size, kept.shape[1])
    is_known = np.arange(width) < rows["splits"][:, None]
    whole[:, :width] = np.where(is_known, kept[:, :width], -1)
    is_even = rows["splits"] == 0
    whole[is_even] = (rows[total][is_even] // size)[:, None]
    return whole
