"""Which programs let their shares of the work be changed, as their ranks say, and what each replica has now.

Example: eight ranks in four replicas offer 16 microbatches. While all share evenly each replica has 4, numbers 0 to 3
the first one. Version 1 gives them 5, 5, 1 and 5; it is in use when all eight ranks say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from whichrank.act.said import Said
from whichrank.model.commands import Place, PlaceOut, Share, ShareOut
from whichrank.model.iterations import Floats, Ints


@dataclass(frozen=True)
class Offer:
    """Of all ranks of a job.

    Attributes:
        ranks: In order, (R,).
        replica: Of each rank, (R,).
        microbatches: Of an iteration, of all replicas.
        multiple: Of which each share is one.
        version: That all ranks use; -1 while some use another one.
        counts: Microbatches of each replica in that version, (D,); none while there is none.
    """

    ranks: Ints
    replica: Ints
    microbatches: int
    multiple: int
    version: int
    counts: Ints

    @property
    def replicas(self) -> int:
        """How many there are."""
        return int(self.replica.max()) + 1

    def took_s(self, own_s: Floats) -> Floats:
        """What each replica computes in each iteration: the most that one of its ranks does, seconds, (D, n).

        Args:
            own_s: Seconds of each iteration that each rank computes, (R, n).
        """
        longest_s = np.zeros((self.replicas, own_s.shape[1]))
        np.maximum.at(longest_s, self.replica, own_s)
        return longest_s

    def order(self, version: int, counts: Ints) -> ShareOut:
        """What to tell all ranks, so that replicas have so many each, (D,)."""
        first = np.cumsum(counts) - counts
        columns = (self.ranks, first[self.replica], counts[self.replica])
        return ShareOut(version, tuple(Share(*row) for row in zip(*(one.tolist() for one in columns), strict=True)))


class Offers(Said):
    """What ranks of a job have said of shares."""

    def __init__(self) -> None:
        super().__init__("shares")

    def of(self, ranks: Collection[int]) -> Offer | None:
        """What all of these ranks offer; None unless they agree, and each replica has one of them at least."""
        rows = self.rows(ranks)
        if rows is None:
            return None
        known = np.array(sorted(ranks), np.int64)
        if any((rows[name] != rows[name][0]).any() for name in ("microbatches", "multiple", "replicas")):
            return None
        microbatches, multiple, replicas = (int(rows[name][0]) for name in ("microbatches", "multiple", "replicas"))
        replica = rows["replica"].astype(np.int64)
        if multiple < 1 or replicas < 1 or set(replica.tolist()) != set(range(replicas)):
            return None
        if microbatches % (replicas * multiple):
            return None
        counts = np.full(replicas, microbatches // replicas)
        version = int(rows["used"][0])
        if (rows["used"] != version).any():
            return Offer(known, replica, microbatches, multiple, -1, np.zeros(0, np.int64))
        if version:
            told = rows["told"][:, version % 2]
            counts[replica] = told["count"]
            if not _is_whole(told, replica, counts, microbatches):
                return None
        return Offer(known, replica, microbatches, multiple, version, counts)


def _is_whole(told: np.ndarray[Any, Any], replica: Ints, counts: Ints, microbatches: int) -> bool:
    """Whether ranks were told shares that fit together."""
    first = (np.cumsum(counts) - counts)[replica]
    return bool((told["count"] == counts[replica]).all() and (told["first"] == first).all()) and (
        int(counts.sum()) == microbatches
    )


def by_agent(order: ShareOut | PlaceOut, agent_of: Mapping[int, str]) -> dict[str, ShareOut | PlaceOut]:
    """The same order, for each agent what is for its own ranks. While one is not told, all keep what they have."""
    if isinstance(order, ShareOut):
        shares = _by_agent(order.shares, agent_of)
        return {agent: ShareOut(order.version, of_it) for agent, of_it in shares.items()}
    places = _by_agent(order.places, agent_of)
    return {agent: PlaceOut(order.version, of_it, order.saves) for agent, of_it in places.items()}


R = TypeVar("R", Share, Place)


def _by_agent(rows: Iterable[R], agent_of: Mapping[int, str]) -> dict[str, tuple[R, ...]]:
    found: dict[str, list[R]] = {}
    for row in rows:
        if row.rank in agent_of:
            found.setdefault(agent_of[row.rank], []).append(row)
    return {agent: tuple(of_it) for agent, of_it in found.items()}
