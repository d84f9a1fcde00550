"""One consistent view of a job, as columns: what `detect` and `locate` look at.

Times are seconds on the analyzer's clock. Ranks are indexed by their global rank, memberships lie flat: the members of
communicator `c` are rows `comm_at[c] : comm_at[c] + comm_size[c]`, in the order of group ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import SPLITS
from whichrank.model.reports import Report

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WAITS = np.dtype(
    [
        ("rank", "i8"),
        ("tid", "i8"),
        ("comm", "i8"),  # index of the communicator
        ("counter", "i8"),
        ("kind", "i8"),
        ("peer", "i8"),  # group rank of root or peer, -1 none
        ("tag", "i8"),
        ("since_s", "f8"),  # blocked since
        ("issue_s", "f8"),
        ("explicit", "?"),  # False: inferred from outside, not reported by the sensor
        ("how", "i8"),
        ("dtype", "i8"),
        ("reduce_op", "i8"),
        ("count", "i8"),
        ("timeout_s", "f8"),
    ]
)
"""A thread that is blocked on an operation."""

REMOTE = np.dtype([("rank", "i8"), ("tid", "i8"), ("peer", "i8"), ("since_s", "f8")])
"""A thread that waits for the answer of a remote call; `peer` is the rank that answers, -1 unknown."""

MEETINGS = np.dtype([("rank", "i8"), ("first", "i8"), ("stride", "i8"), ("size", "i8"), ("since_s", "f8")])
"""A rank that makes a communicator: it needs `size` ranks for it, `first` and so on by `stride`; size 0 unknown."""

OPS = np.dtype(
    [
        ("rank", "i8"),
        ("comm", "i8"),
        ("counter", "i8"),
        ("kind", "i8"),
        ("peer", "i8"),
        ("tag", "i8"),
        ("dtype", "i8"),
        ("reduce_op", "i8"),
        ("count", "i8"),
        ("signature", "u8"),
        ("flags", "i8"),
        ("ordinal", "i8"),
        ("tid", "i8"),
        ("issue_s", "f8"),
        ("failed", "?"),  # it ended with an error; else it is in flight
    ]
)
"""An operation in flight, or one of the last that failed."""

SPLITS_OF = np.dtype(
    [
        ("rank", "i8"),
        ("comm", "i8"),
        ("counter", "i8"),
        ("splits", "i8"),  # how many are known; 0: the same for all members
        ("count", "i8"),
        ("out_count", "i8"),
        ("split_in", "i8", (SPLITS,)),
        ("split_out", "i8", (SPLITS,)),
    ]
)
"""What one of the latest all-to-alls of a rank sends to each member and expects of it, in elements."""

PAIRS = np.dtype(
    [
        ("rank", "i8"),
        ("comm", "i8"),
        ("kind", "i8"),
        ("peer", "i8"),
        ("tag", "i8"),
        ("issued", "i8"),
        ("completed", "i8"),
    ]
)
"""Counters of send/recv of one rank toward one peer and tag."""


@dataclass(frozen=True)
class Recorded:
    """What is known of a recording that others made of one moment, in which nobody saw a thread or a process.

    Attributes:
        is_still: The job stood still; else who is behind may just be so for a moment.
        shows_hangs: Operations that have not ended are in it.
        hides_messages: Sends and receives are not, so who waits in one looks as if it did nothing.
        is_young: The job had just begun, so communicators may be new.
        has_only_counts: It says how many operations ranks have issued, and not where the program was when it did.
        gave_up_s: When the first rank gave up an operation that had run out of time, on the clock of the recording; 0:
            not known.
        reports: What libraries and drivers say of ranks in its logs.
    """

    is_still: bool = True
    shows_hangs: bool = True
    hides_messages: bool = False
    is_young: bool = False
    has_only_counts: bool = False
    gave_up_s: float = 0.0
    reports: tuple[Report, ...] = ()


@dataclass(frozen=True)
class Picture:
    """The state of a job at one moment. Arrays over ranks have the world's size; missing ranks are not `present`."""

    now_s: float
    present: Bools
    """A ring of this rank was read."""
    fresh: Bools
    """Its agent was heard lately, and had just read its ring (or its process has ended): its state is news."""
    read_s: Floats
    """The latest that its ring can have been read."""
    read_after_s: Floats
    """The earliest: a state that began before this was surely still unseen or seen whole."""
    main_tid: Ints
    stopped: Bools
    """The process was stopped in two snapshots."""
    gone: Bools
    """The process has ended, or its interpreter has, and will issue nothing any more."""
    busy: Bools
    """It writes, or its children work."""
    waits: np.ndarray[Any, Any]
    """Rows of WAITS."""
    ops: np.ndarray[Any, Any]
    """Rows of OPS."""
    pairs: np.ndarray[Any, Any]
    """Rows of PAIRS."""
    comm_at: Ints
    comm_size: Ints
    member_rank: Ints
    """Global rank of each membership, -1 unknown."""
    member_issued: Ints
    member_done: Ints
    member_tid: Ints
    """Thread that issued the latest operation there, 0 none."""
    member_seen: Bools
    """A row of this membership was read."""
    splits: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(0, SPLITS_OF))
    """Rows of SPLITS_OF, of ranks that have ended or begin no more of them."""
    recorded: Recorded | None = None
    """It is of a recording that others made; None: an agent beside each rank looks."""
    remote: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(0, REMOTE))
    """Rows of REMOTE."""
    meetings: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(0, MEETINGS))
    """Rows of MEETINGS."""
    issuing_tid: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Thread that issued the latest operation of each rank, 0 none; empty where that is not known."""

    @property
    def world_size(self) -> int:
        """Ranks that the job has, seen or not."""
        return len(self.present)

    def group_rank_to_rank(self, comm: int, group_rank: int) -> int:
        """The global rank behind a group rank, -1 unknown."""
        if not 0 <= group_rank < self.comm_size[comm]:
            return -1
        return int(self.member_rank[self.comm_at[comm] + group_rank])
