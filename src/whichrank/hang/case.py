"""What each question is asked of: one job, by what was received of it, and how its parts are called."""

from __future__ import annotations

from typing import Any

from whichrank.hang.peers import Peers
from whichrank.hang.skews import Skews
from whichrank.model.picture import Picture
from whichrank.model.signature import describe, op_name
from whichrank.store.store import Store

LISTED = 16
"""Candidates, at most: more help nobody."""
MOST_CANDIDATES = 1024
"""The same of a recording: of half a job nothing may be read, and the one at fault is among those. Words fold ranks of
which the same is said into one line."""


def most_candidates(picture: Picture) -> int:
    """So many candidates are listed."""
    return LISTED if picture.recorded is None else MOST_CANDIDATES


class Case:
    """One job.

    Args:
        store: What was received of it.

    Attributes:
        store: The same.
        skews: Who issued something else than its own past says.
        peers: And who issued something else than ranks in the same position.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.skews = Skews(store.sequences, store)
        self.peers = Peers(self.skews)

    def comm_name(self, comm: int) -> str:
        """The communicator in words: its description, else its name."""
        return self.store.comms.name(comm)

    def op_name(self, row: Any) -> str:
        """`all_reduce #1204`."""
        return op_name(int(row["kind"]), int(row["counter"]))

    def op_on(self, row: Any) -> str:
        """`all_reduce #1204 on dp`."""
        return f"{self.op_name(row)} on {self.comm_name(int(row['comm']))}"

    def op_of(self, row: Any) -> dict[str, int]:
        """The fields of an operation that a finding carries."""
        return {name: int(row[name]) for name in ("kind", "counter", "dtype", "count", "reduce_op", "peer")}

    def words_of(self, row: Any) -> str:
        """`all_reduce of 1024 float32 (sum)`."""
        return describe(int(row["kind"]), int(row["dtype"]), int(row["count"]), int(row["reduce_op"]), int(row["peer"]))

    def complete(self, picture: Picture) -> bool:
        """Was every rank of the world read, and lately, unless it has ended?"""
        return bool((picture.present & (picture.fresh | picture.gone)).all())
