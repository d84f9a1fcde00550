"""Silent skew, by a rank's own past: it left out, repeated or added an operation, and its peers have not.

What a rank issued is compared with its own period (`store.sequences`). A difference is reported when it has lasted
three iterations and no other member of the communicator has it too. Nothing hangs then, but the data is wrong since.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from whichrank.locate.signatures import Skew, confirm_skew
from whichrank.model.sequence import Edit
from whichrank.store.sequences import Sequences

RECENT_ITERATIONS = 8
"""In which the edits of another rank count."""
OLDEST_ITERATIONS = 64
"""An edit from longer ago is not reported any more."""


class Frontiers(Protocol):
    """How far each rank is, as it was reported last."""

    def frontier(self, comm: int, rank: int) -> tuple[int, int]:
        """Operations that a rank has issued and completed on a communicator."""

    def ordinal(self, rank: int) -> int:
        """Operations that a rank has issued in all."""

    def dealt_with_failure(self, ranks: list[int]) -> bool:
        """Has one of these gone on after an operation of its own had failed?"""


class Skews:
    """Skews of one job, each reported once.

    Args:
        sequences: What every rank issued.
        frontiers: How far each rank is.
    """

    def __init__(self, sequences: Sequences, frontiers: Frontiers) -> None:
        self.sequences = sequences
        self._frontiers = frontiers
        self._reported: dict[int, list[tuple[int, int]]] = {}  # by rank: ordinal and communicator
        self._shift: dict[int, int] = {}
        self._skewed: dict[int, set[int]] = {}
        self._marks: dict[tuple[int, int], tuple[int, int]] = {}

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        self._reported.pop(rank, None)
        self._shift.pop(rank, None)

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

    def shift_of(self, rank: int) -> int:
        """Operations that a rank has issued too many, or too few if negative, by the skews that were reported of it."""
        return self._shift.get(rank, 0)

    def reported_up_to(self, rank: int) -> int:
        """Ordinal of the latest skew that was reported of a rank; 0 if none was."""
        return max((ordinal for ordinal, _ in self._reported.get(rank, ())), default=0)

    def skewed(self, comm: int) -> frozenset[int]:
        """Ranks of which a skew on this communicator was reported."""
        return frozenset(self._skewed.get(self.sequences.key_of(comm), ()))

    def has_gap(self, key: int) -> bool:
        """Has a member dealt with a failure? One that failed, or did not come, has issued others than its peers."""
        return self._frontiers.dealt_with_failure(self.sequences.members_of(key))

    def lasting(self) -> list[Skew]:
        """Edits that have lasted three iterations and that no other member of the communicator shares."""
        found = []
        for rank in sorted(self.sequences.edited):
            s = self.sequences.sequence(rank)
            if self._frontiers.ordinal(rank) + s.period < s.last_ordinal:
                continue  # its records came without its states, which say how far the others would have to be
            is_over = True
            for edit, at in zip(s.edits, s.edit_index, strict=True):
                known = any(edit.ordinal == ordinal for ordinal, _ in self._reported.get(rank, ()))
                if known or s.last_ordinal - edit.ordinal > OLDEST_ITERATIONS * edit.period:
                    continue
                is_over = False
                skew = confirm_skew(
                    rank, edit, len(s.tokens) - at, self.sequences.group_of, self.sequences.members_of,
                    partial(self._edits_beside, rank, edit), self.sequences.per_iteration,
                    partial(self._has_passed, rank, edit),
                )  # fmt: skip
                if skew and not self.has_gap(skew.comm_key) and self.report(skew):
                    found.append(skew)
            if is_over:
                self.sequences.edited.discard(rank)
        return found

    def _has_passed(self, rank: int, edit: Edit, key: int, other: int) -> bool:
        """Has the other been seen where this rank was when its edit had lasted? Agents may be seconds apart."""
        mark = self._marks.get((rank, edit.ordinal))
        if mark is None:
            comm = self.sequences.comm_of_key(key)
            mark = self._marks[rank, edit.ordinal] = comm, self._frontiers.frontier(comm, rank)[1]
        s = self.sequences.sequence(other)
        has_come = self._frontiers.frontier(mark[0], other)[0] >= mark[1]
        is_known = self._frontiers.ordinal(other) - s.last_ordinal <= s.period
        return has_come and is_known and self._covers(rank, edit, mark[0], other)

    def _covers(self, rank: int, edit: Edit, comm: int, other: int) -> bool:
        """Was the other's iteration known around this rank's edit? A loss or a new phase hides its own edits."""
        at = self._frontiers.frontier(comm, rank)[1] - self.sequences.issued_since(comm, rank, edit.ordinal)
        theirs, issued = self.sequences.sequence(other), self._frontiers.frontier(comm, other)[0]
        begin = issued - self.sequences.issued_since(comm, other, theirs.explained_up_to - theirs.explained + 1)
        end = issued - self.sequences.issued_since(comm, other, theirs.explained_up_to + 1)
        margin = self.sequences.per_iteration(rank, self.sequences.key_of(comm))
        return begin <= at - margin and at + margin <= end

    def _edits_beside(self, rank: int, edit: Edit, other: int) -> tuple[list[Edit], int] | None:
        """A rank's recent edits, and older ones that are the same: agents may be many iterations apart.

        Of another rank, those that the rank of the edit has not had in the same place (a log line that all write).
        """
        s = self.sequences.sequence(other)
        if not s.period:
            return None
        # Around the edit too, since what makes up for it comes soon after, and it may be long ago.
        recent = min(s.last_ordinal, edit.ordinal) - RECENT_ITERATIONS * max(s.period, 16)
        same = (edit.missing, edit.extra)
        edits = [e for e in s.edits if e.ordinal > recent or (e.missing, e.extra) == same]
        if other == rank:
            return edits, s.explained
        return self._unshared(rank, edit, other, edits) if edits else edits, s.explained

    def _unshared(self, rank: int, edit: Edit, other: int, edits: list[Edit]) -> list[Edit]:
        """The other's edits without those that this rank had too, apart from `edit`, each at most once."""
        key = self.sequences.group_of((edit.missing + edit.extra)[0])
        comm = self.sequences.comm_of_key(key)
        slack = self.sequences.per_iteration(rank, key) + len(edit.missing) + len(edit.extra)

        def place(of: int, e: Edit) -> int:
            """Operations on this communicator before the edit."""
            return self._frontiers.frontier(comm, of)[0] - self.sequences.issued_since(comm, of, e.ordinal)

        def there(e: Edit) -> tuple[list[int], list[int]]:
            """What the edit is on this communicator."""
            missing, extra = ([t for t in part if self.sequences.group_of(t) == key] for part in (e.missing, e.extra))
            return missing, extra

        mine = [e for e in self.sequences.sequence(rank).edits if e is not edit and any(there(e))]
        left = []
        for e in edits:
            twins = [m for m in mine if there(m) == there(e) and abs(place(rank, m) - place(other, e)) <= slack]
            if twins:
                mine.remove(twins[0])
            elif any(there(e)):
                left.append(e)
        return left
