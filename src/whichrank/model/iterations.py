"""Iterations as values: operations that were completed, steps, and what became of the time between them.

An iteration of a rank lasts from one optimizer step to the next, on the clock of its own host. All times are on a
rank's own clock and are never compared with another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.work import Work

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SPAN_NS: Final = 1 << 43
"""2.4 hours: the longest iteration that is measured. 2^20 ranks fit into one number beside it."""

OP: Final = np.dtype(
    [
        ("rank", "i8"),
        ("comm", "i8"),
        ("counter", "u4"),
        ("ordinal", "u4"),
        ("issue_ns", "i8"),
        ("end_ns", "i8"),
        ("blocked_ns", "i8"),
        ("count", "u8"),
        ("peer", "i4"),
        ("stage", "u2"),  # of send/recv: the rank's own place in the communicator, from 1
        ("offset", "u2"),  # of send/recv: from there to the peer's, counted round; 0 not known, or the same both ways
        ("kind", "u1"),
        ("future", "?"),  # only its future was waited for, which nobody sees
    ]
)
"""A completed operation."""
STEP: Final = np.dtype([("rank", "i8"), ("counter", "i8"), ("ordinal", "i8"), ("at_ns", "i8")])
"""The end of an iteration: the step's number, the operations begun before it, when it was made."""
GIVEN: Final = np.dtype([("rank", "i8"), ("at_ns", "i8"), ("elements", "f8"), ("length", "f8")])
"""What a rank is given to compute, and when; the length of its sequences, 0 where it is not known."""

PASS: Final = np.dtype([("rank", "i8"), ("begin_ns", "i8"), ("end_ns", "i8")])
"""A backward pass."""

ITERATION: Final = np.dtype(
    [
        ("iteration", "i8"),  # number of the step that opens it
        ("end_ns", "i8"),  # on the rank's own clock
        ("total_s", "f4"),
        ("own_s", "f4"),
        ("elements", "f4"),  # that it was given to compute; 0 not known
        ("length", "f4"),  # of the sequences among them; 0 not known
        ("messages", "i4"),  # operations to or from one rank
        ("pattern", "u8"),  # which kinds of operations on which kinds of communicators, in any order
        ("turned", "u8"),  # the same as it looks from where the rank stands: alike all round a ring
        ("roots", "u8"),  # of which sorts of operations the rank is the root; 0 of none
    ]
)
"""One iteration of one rank."""


class Ops:
    """Completed operations, each field of OP a column: what goes through one touches no more memory than it has.

    Args:
        columns: By name, (n,) each, of the types that they have in OP.
    """

    def __init__(self, columns: dict[str, NDArray[Any]]) -> None:
        self._columns = columns

    @classmethod
    def of_rows(cls, rows: np.ndarray[Any, Any]) -> Ops:
        """From rows of OP."""
        return cls({name: np.ascontiguousarray(rows[name]) for name in OP.names or ()})

    @classmethod
    def joined(cls, parts: Sequence[Ops]) -> Ops:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.of_rows(np.zeros(0, OP))
        return cls({name: np.concatenate([part[name] for part in parts]) for name in OP.names or ()})

    def __len__(self) -> int:
        return len(self._columns["rank"])

    def __getitem__(self, field: str) -> NDArray[Any]:
        return self._columns[field]

    def taken(self, which: NDArray[Any]) -> Ops:
        """Some of them, by their places or by a mask."""
        at = np.flatnonzero(which) if which.dtype == np.bool_ else which
        return Ops({name: column[at] for name, column in self._columns.items()})

    def those(self, which: Bools) -> Ops:
        """Those for which it holds; the same where it holds for all."""
        return self if which.all() else self.taken(which)


def key_of(rank: NDArray[Any], at_ns: Ints) -> Ints:
    """A rank and a time since some zero of its own as one number, sorted by rank first."""
    return np.asarray(rank.astype(np.int64) * SPAN_NS + np.clip(at_ns, 0, SPAN_NS - 1))


@dataclass(frozen=True)
class Window:
    """Iterations that all ranks have been through, with the usual operations.

    Attributes:
        ranks: Ranks compared, (R,).
        iteration: Their numbers, (n,).
        end_ns: When each ended, on the clock of each rank, (R, n).
        total_s: From step to step, (R, n).
        own_s: Not blocked in operations, (R, n).
        position: A number for each rank, equal for ranks in the same position, (R,).
        in_pipeline: It sends to some rank, or receives from one, (R,).
        roots: A number for each rank, equal for ranks that are roots of the same sorts of operations; 0 of none, (R,).
        lasted_s: Seconds from the first to the last iteration.
        ring: A number for each rank, equal for those that send and receive alike all round a ring, -1 for others, (R,).
        given: What each rank was given to compute, (R, n); None where nothing is known of it.
        pattern: A number for these operations, equal in windows that have the same.
    """

    ranks: Ints
    iteration: Ints
    end_ns: Ints
    total_s: Floats
    own_s: Floats
    position: Ints
    in_pipeline: Bools
    roots: NDArray[np.uint64]
    lasted_s: float
    ring: Ints
    given: Work | None = None
    pattern: int = 0

    @cached_property
    def iteration_s(self) -> float:
        """How long an iteration usually takes."""
        return float(np.median(self.total_s))

    def since(self, window_s: float, least: int = 1) -> int:
        """The first column of the last `window_s` seconds, by the clock of the first rank, and of `least` at least."""
        first = int(np.searchsorted(self.end_ns[0], self.end_ns[0, -1] - window_s * 1e9, side="right"))
        return max(0, min(first, len(self.iteration) - least))

    def last(self, window_s: float, least: int) -> Window:
        """The iterations of the last `window_s` seconds, and `least` at least.

        `lasted_s` counts those with the usual operations only.
        """
        first = self.since(window_s, least)
        if first == 0:
            return self
        return replace(
            self,
            iteration=self.iteration[first:],
            end_ns=self.end_ns[:, first:],
            total_s=self.total_s[:, first:],
            own_s=self.own_s[:, first:],
            lasted_s=float(self.total_s[0, first:].sum()),
            given=self.given[:, first:] if self.given is not None else None,
        )

    def peers_of(self, index: int) -> Ints:
        """Indices of the other ranks in the same position."""
        same = self.position == self.position[index]
        same[index] = False
        return np.flatnonzero(same)


@dataclass(frozen=True)
class Excess:
    """Own time beyond that of the same position.

    Attributes:
        excess_s: (R, n); zero where a rank has no peers.
        by_work_s: The part of it that may come of having more to do, (R, n).
        usual_s: Own time of the position, (R, n).
        has_peers: (R,).
        work: What each has to do in proportion to its position, (R,).
    """

    excess_s: Floats
    by_work_s: Floats
    usual_s: Floats
    has_peers: Bools
    work: Floats

    def last(self, count: int) -> Excess:
        """The same of the last `count` iterations."""
        excess_s, by_work_s, usual_s = (x[:, -count:] for x in (self.excess_s, self.by_work_s, self.usual_s))
        return replace(self, excess_s=excess_s, by_work_s=by_work_s, usual_s=usual_s)
