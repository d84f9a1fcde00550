"""The ranks of a cycle of waits: a few of each kind are asked, and all of a kind in which one answers.

A rank that leaves an operation out can make half of a job wait in one cycle, and it takes long to read what each has
issued. But most of these ranks have come there in the same way. Those are of one kind that wait in operations of one
kind, on communicators of one description and size, have issued as many operations before, and have a period that still
holds, or none. A rank that has lately left out, added or changed an operation is of another kind than its peers: it
has issued more or fewer, or its period holds no more. Nobody is named who was not asked.

Example: of 4,096 ranks 1,505 are on a cycle, and of six kinds. 21 are asked, and the one that left an operation out is
the only one of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from whichrank.hang.case import Case
from whichrank.model.picture import Ints, Picture
from whichrank.model.places import places
from whichrank.model.signature import mix
from whichrank.store.sequences import Sequences

ASKED_OF_A_KIND: Final = 4
"""Ranks whose past is read: those of one kind have issued the same, so more say nothing new."""


@dataclass(frozen=True)
class Cycle:
    """Ranks that wait for each other.

    Attributes:
        waits: Rows of WAITS, (n,).
        ordinals: Of the operation that each waits in, among all of its rank; -1 where it is not in flight, (n,).
        kinds: A number for the kind of each, (n,).
    """

    waits: np.ndarray[Any, Any]
    ordinals: Ints
    kinds: Ints

    @property
    def ranks(self) -> Ints:
        """The rank of each wait, (n,)."""
        return np.asarray(self.waits["rank"])

    def find(self, found_among: Callable[[Ints], Ints]) -> Ints:
        """The places of waits that `found_among` finds: it is given a few of each kind, then all of a kind with a find.

        Args:
            found_among: Takes places, ascending, and returns those of which it finds what is looked for.
        """
        asked = _some_of_each(self.kinds)
        while True:
            found = found_among(asked)
            more = np.union1d(asked, np.flatnonzero(np.isin(self.kinds, self.kinds[found])))
            if len(more) == len(asked):
                return found
            asked = more


def cycle_of(case: Case, picture: Picture, descriptions: Ints, waits: np.ndarray[Any, Any]) -> Cycle:
    """The cycle of these waits.

    Args:
        case: The job.
        picture: The same job now.
        descriptions: See `descriptions_of`.
        waits: Rows of WAITS of the ranks on it.
    """
    ordinals = _ordinals(picture.ops, waits)
    return Cycle(waits, ordinals, _kinds(case.store.sequences, descriptions, waits, ordinals))


def descriptions_of(case: Case) -> Ints:
    """By communicator, a number for its description and size: those of one number are sisters, (C,)."""
    numbers: dict[tuple[str, int], int] = {}
    return np.array([numbers.setdefault((c.desc, c.size), len(numbers)) for c in case.store.comms.info], np.int64)


def _kinds(sequences: Sequences, descriptions: Ints, waits: np.ndarray[Any, Any], ordinals: Ints) -> Ints:
    key = descriptions[waits["comm"]] << 9 | waits["kind"] << 1 | sequences.are_settled(waits["rank"])
    return np.unique(key << 32 | ordinals & 0xFFFFFFFF, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _some_of_each(kinds: Ints) -> Ints:
    """The first few places of each kind, ascending."""
    order = np.argsort(kinds, kind="stable")
    begins = np.searchsorted(kinds[order], kinds[order])
    return np.sort(order[np.arange(len(order)) - begins < ASKED_OF_A_KIND])


def _ordinals(ops: np.ndarray[Any, Any], waits: np.ndarray[Any, Any]) -> Ints:
    """Of the operation in flight that each waits in, -1 where there is none."""
    at = places(_key(waits), _key(ops))
    return np.where(at >= 0, ops["ordinal"][at], -1) if len(ops) else np.full(len(waits), -1, np.int64)


def _key(rows: np.ndarray[Any, Any]) -> Any:
    """A number for each operation, of rows of WAITS or OPS."""
    key = mix(np.zeros(len(rows), np.uint64), rows["rank"] << 32 | rows["comm"])
    return mix(mix(key, rows["counter"]), rows["kind"] << 32 | rows["peer"] & 0xFFFFFFFF)
