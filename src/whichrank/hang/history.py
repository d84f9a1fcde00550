"""What every rank issued, as token sequences: for the witnesses of a contradiction, and for silent skew.

A token is a 32-bit hash of communicator (name and members, so that it survives a re-initialisation) and signature. The
operations in flight are taken from each snapshot, since a posted receive may stay open for thousands of others.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.period import Sequence
from whichrank.detect.steps import Steps
from whichrank.locate.signatures import Skew, confirm_skew
from whichrank.model.kinds import is_collective, is_message
from whichrank.model.roles import role_of_description
from whichrank.model.sequence import Edit, Shapes, Tokens
from whichrank.model.signature import mix, signatures
from whichrank.model.stable_hash import stable_hash
from whichrank.model.telemetry import CommInfo
from whichrank.store.growing import Growing

RECENT_ITERATIONS = 8
LEAST_GROUPS = 2
LEAST_AFTER_LOSS = 512
"""A past of fewer operations, behind a loss, makes the usual look new."""


class Frontiers(Protocol):
    """How far each rank is, as it was reported last."""

    def frontier(self, comm: int, rank: int) -> tuple[int, int]:
        """Operations that a rank has issued and completed on a communicator."""

    def ordinal(self, rank: int) -> int:
        """Operations that a rank has issued in all."""

    def dealt_with_failure(self, ranks: list[int]) -> bool:
        """Has one of these gone on after an operation of its own had failed?"""


class History:
    """Token sequences of all ranks, and what tokens mean."""

    def __init__(self) -> None:
        self.steps = Steps()
        self._of: dict[int, Sequence] = {}
        self._comm_key: list[int] = []
        self._key_column = Growing(np.uint64)
        self._members: dict[int, list[int]] = {}
        self._token_comm: dict[int, int] = {}
        self._token_shape: dict[int, int] = {}
        self._desc: list[tuple[str, int]] = []
        self._closing: set[int] = set()
        self._reported: dict[int, list[tuple[int, int]]] = {}  # by rank: ordinal and communicator of skews
        self._shift: dict[int, int] = {}
        self._skewed: dict[int, set[int]] = {}
        self._edited: set[int] = set()
        self._marks: dict[tuple[int, int], tuple[int, int]] = {}

    def add_comms(self, info: list[CommInfo]) -> None:
        """Learn communicators by their index in `info`."""
        for c in info[len(self._comm_key) :]:
            key = stable_hash(c.name, np.array(c.members, np.int64))
            self._comm_key.append(key)
            self._key_column.append(np.array([key], np.uint64))
            self._desc.append((c.desc, c.size))
            self._members[key] = list(c.members)

    def tokens_of(
        self, comm: NDArray[np.int64], rows: np.ndarray[Any, Any], signs: NDArray[np.uint64] | None = None
    ) -> Tokens:
        """Tokens of operations; rows need the fields that `signatures` needs."""
        if not len(rows):
            return np.zeros(0, np.uint32)
        signs = signatures(rows) if signs is None else signs
        keys = self._key_column.rows[comm]
        tokens = (mix(keys, signs) >> np.uint64(32)).astype(np.uint32)
        values, first = np.unique(tokens, return_index=True)
        for value, at in zip(values.tolist(), first.tolist(), strict=True):
            if value not in self._token_comm:
                kind = int(rows["kind"][at])
                if role_of_description(self._desc[int(comm[at])][0]) in ("dp", "edp") and is_collective(kind):
                    self._closing.add(value)
                self._token_comm[value] = -1 if is_message(kind) else int(keys[at])
                sign = (kind, int(rows["count"][at])) if is_message(kind) else (int(signs[at]),)
                self._token_shape[value] = stable_hash(*self._desc[int(comm[at])], *sign)
        return tokens

    def same_group(self, a: int, b: int) -> bool:
        """Are these tokens of one communicator? Send/recv are of none."""
        return self._token_comm.get(a, -1) == self._token_comm.get(b, -2)

    def group_of(self, token: int) -> int:
        """The communicator of a token (a key that survives re-initialisation), -1 for send/recv."""
        return self._token_comm.get(token, -1)

    def members_of(self, key: int) -> list[int]:
        """The ranks of a communicator; empty if it is not known."""
        return self._members.get(key, [])

    def key_of(self, comm: int) -> int:
        """The key of a communicator by its index."""
        return self._comm_key[comm]

    def shape_of(self, token: int) -> int:
        """What a token is on any communicator of the same description and size."""
        return self._token_shape.get(token, token)

    def shapes_of(self, tokens: Tokens) -> Shapes:
        """As `shape_of`, for each of these."""
        values, at = np.unique(tokens, return_inverse=True)
        return np.array([self.shape_of(t) for t in values.tolist()], np.int64)[at.reshape(-1)]

    def feed(
        self,
        rank: NDArray[Any],
        comm: NDArray[np.int64],
        rows: np.ndarray[Any, Any],
        signs: NDArray[np.uint64] | None = None,
    ) -> None:
        """Take completed operations or operations in flight of any ranks; `signs` are their signatures, if known."""
        if not len(rows):
            return
        tokens = self.tokens_of(comm, rows, signs)
        order = np.argsort(rank, kind="stable")
        rank, tokens, ordinals = rank[order], tokens[order], rows["ordinal"][order].astype(np.int64)
        bounds = np.flatnonzero(np.diff(rank)) + 1
        for part in np.split(np.arange(len(rank)), bounds):
            of = int(rank[part[0]])
            sequence = self.sequence(of)
            sequence.feed(ordinals[part], tokens[part])
            if sequence.edits:
                self._edited.add(of)

    def sequence(self, rank: int) -> Sequence:
        """The sequence of a rank."""
        if rank not in self._of:
            self._of[rank] = Sequence(closes=self._closing.__contains__)
        return self._of[rank]

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        self.steps.forget(rank)
        self._of.pop(rank, None)
        self._edited.discard(rank)
        self._reported.pop(rank, None)
        self._shift.pop(rank, None)

    def shift_of(self, rank: int) -> int:
        """Operations that a rank has issued too many, or too few if negative, by the skews that were reported of it."""
        return self._shift.get(rank, 0)

    def reported_up_to(self, rank: int) -> int:
        """Ordinal of the latest skew that was reported of a rank; 0 if none was."""
        return max((ordinal for ordinal, _ in self._reported.get(rank, ())), default=0)

    def report(self, skew: Skew) -> bool:
        """Note a skew. False: it was reported before, maybe from another witness."""
        reported = self._reported.setdefault(skew.rank, [])
        at = skew.edit.ordinal
        if any(key == skew.comm_key and abs(at - ordinal) <= skew.edit.period for ordinal, key in reported):
            return False
        reported.append((at, skew.comm_key))
        self._shift[skew.rank] = self.shift_of(skew.rank) + len(skew.edit.extra) - len(skew.edit.missing)
        self._skewed.setdefault(skew.comm_key, set()).add(skew.rank)
        return True

    def up_to(self, rank: int, ordinal: int) -> Tokens:
        """The rank's tokens up to and with one of its operations; empty if that is not known, or too little of it."""
        s = self.sequence(rank)
        n = len(s.tokens) - (s.last_ordinal - ordinal)
        if s.is_cut and n < LEAST_AFTER_LOSS:
            return s.tokens[:0]
        return s.tokens[:n] if 0 < n <= len(s.tokens) else s.tokens[:0]

    def skewed(self, comm: int) -> frozenset[int]:
        """Ranks of which a skew on this communicator was reported."""
        return frozenset(self._skewed.get(self._comm_key[comm], ()))

    def skews(self, reported: Frontiers) -> list[Skew]:
        """Edits that have lasted three iterations and that no other member of the communicator shares.

        Args:
            reported: How far each rank is.
        """
        found = []
        for rank in sorted(self._edited):
            s = self._of[rank]
            if reported.ordinal(rank) + s.period < s.last_ordinal:
                continue  # its records came without its states, which say how far the others would have to be
            for edit, at in zip(s.edits, s.edit_index, strict=True):
                known = any(edit.ordinal == ordinal for ordinal, _ in self._reported.get(rank, ()))
                if known or s.last_ordinal - edit.ordinal > 64 * edit.period:
                    continue
                skew = confirm_skew(
                    rank, edit, len(s.tokens) - at, self.group_of, self.members_of,
                    partial(self._edits_beside, reported, rank, edit), self._per_iteration,
                    partial(self._has_passed, reported, rank, edit),
                )  # fmt: skip
                if skew and not self.has_gap(skew.comm_key, reported) and self.report(skew):
                    found.append(skew)
        return found

    def has_gap(self, key: int, reported: Frontiers) -> bool:
        """Has a member dealt with a failure? One that failed, or did not come, has issued others than its peers."""
        return reported.dealt_with_failure(self.members_of(key))

    def _has_passed(self, reported: Frontiers, rank: int, edit: Edit, key: int, other: int) -> bool:
        """Has the other been seen where this rank was when its edit had lasted? Agents may be seconds apart."""
        mark = self._marks.get((rank, edit.ordinal))
        if mark is None:
            comm = self.comm_of_key(key)
            mark = self._marks[rank, edit.ordinal] = comm, reported.frontier(comm, rank)[1]
        s = self.sequence(other)
        seen = reported.frontier(mark[0], other)[0] >= mark[1] and reported.ordinal(other) - s.last_ordinal <= s.period
        return seen and self._covers(reported, rank, edit, mark[0], other)

    def _covers(self, reported: Frontiers, rank: int, edit: Edit, comm: int, other: int) -> bool:
        """Was the other's iteration known around this rank's edit? A loss or a new phase hides its own edits."""
        at = reported.frontier(comm, rank)[1] - self._issued_since(comm, rank, edit.ordinal)
        theirs, issued = self.sequence(other), reported.frontier(comm, other)[0]
        begin = issued - self._issued_since(comm, other, theirs.explained_up_to - theirs.explained + 1)
        end = issued - self._issued_since(comm, other, theirs.explained_up_to + 1)
        margin = self._per_iteration(rank, self._comm_key[comm])
        return begin <= at - margin and at + margin <= end

    def _issued_since(self, comm: int, rank: int, ordinal: int) -> int:
        """Operations on this communicator among a rank's tokens from this operation on."""
        s = self.sequence(rank)
        first = s.last_ordinal - len(s.tokens) + 1
        ours = [t for t, key in self._token_comm.items() if key == self._comm_key[comm]]
        return int(np.isin(s.tokens[max(ordinal - first, 0) :], ours).sum())

    def comm_of_key(self, key: int) -> int:
        """Index of the latest communicator with this key."""
        return len(self._comm_key) - 1 - self._comm_key[::-1].index(key)

    def _per_iteration(self, rank: int, key: int) -> int:
        s = self._of.get(rank)
        return sum(self.group_of(t) == key for t in s.template.tolist()) if s else 0

    def iterations(self, rank: int) -> int | None:
        """Iterations that a rank has completed: its optimizer's steps, else as its period says; None if neither does.

        A period is an iteration for sure only if operations of several groups alternate in it: else it may be a layer.
        """
        if steps := self.steps.count(rank):
            return steps
        s = self._of.get(rank)
        if s is None or not s.is_whole or len({self.group_of(t) for t in s.template.tolist()}) < LEAST_GROUPS:
            return None
        return s.iterations()

    def _edits_beside(self, reported: Frontiers, rank: int, edit: Edit, other: int) -> tuple[list[Edit], int] | None:
        """A rank's recent edits, and older ones that are the same: agents may be many iterations apart.

        Of another rank, those that the rank of the edit has not had in the same place (a log line that all write).
        """
        s = self._of.get(other)
        if s is None or not s.period:
            return None
        # Around the edit too, since what makes up for it comes soon after, and it may be long ago.
        recent = min(s.last_ordinal, edit.ordinal) - RECENT_ITERATIONS * max(s.period, 16)
        same = (edit.missing, edit.extra)
        edits = [e for e in s.edits if e.ordinal > recent or (e.missing, e.extra) == same]
        if other == rank:
            return edits, s.explained
        return self._unshared(reported, rank, edit, other, edits) if edits else edits, s.explained

    def _unshared(self, reported: Frontiers, rank: int, edit: Edit, other: int, edits: list[Edit]) -> list[Edit]:
        """The other's edits without those that this rank had too, apart from `edit`, each at most once."""
        key = self.group_of((edit.missing + edit.extra)[0])
        comm = self.comm_of_key(key)
        slack = self._per_iteration(rank, key) + len(edit.missing) + len(edit.extra)

        def place(of: int, e: Edit) -> int:
            """Operations on this communicator before the edit."""
            return reported.frontier(comm, of)[0] - self._issued_since(comm, of, e.ordinal)

        def there(e: Edit) -> tuple[list[int], list[int]]:
            """What the edit is on this communicator."""
            missing, extra = ([t for t in part if self.group_of(t) == key] for part in (e.missing, e.extra))
            return missing, extra

        mine = [e for e in self.sequence(rank).edits if e is not edit and any(there(e))]
        left = []
        for e in edits:
            twins = [m for m in mine if there(m) == there(e) and abs(place(rank, m) - place(other, e)) <= slack]
            if twins:
                mine.remove(twins[0])
            elif any(there(e)):
                left.append(e)
        return left
