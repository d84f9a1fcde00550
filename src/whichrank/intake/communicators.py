"""Communicators of recordings: by name and members, since names recur."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from whichrank.model.stable_hash import stable_hash

Key = tuple[str, tuple[int, ...]]
"""Name and members."""


def comm_id_of(key: Key) -> int:
    """A number for a communicator: the same for the same name and members, never 0."""
    name, members = key
    return stable_hash(name, np.array(members, np.int64)) | 1


@dataclass(frozen=True, eq=False)
class Communicator:
    """One of a job. There is one object for each, so that looking one up does not depend on how many members it has.

    Attributes:
        name: As it is recorded.
        members: Global ranks by group rank.
        places: Group ranks by global rank.
        comm_id: See `comm_id_of`.
    """

    name: str
    members: tuple[int, ...]
    places: Mapping[int, int]
    comm_id: int


class Communicators:
    """Those of a job."""

    def __init__(self) -> None:
        self._known: dict[Key, Communicator] = {}

    def of(self, name: str, members: tuple[int, ...]) -> Communicator:
        """The one of this name and with these members."""
        key = name, members
        if key not in self._known:
            places = MappingProxyType({rank: place for place, rank in enumerate(members)})
            self._known[key] = Communicator(name, members, places, comm_id_of(key))
        return self._known[key]
