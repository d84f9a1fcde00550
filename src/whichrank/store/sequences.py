"""What every rank issued, as token sequences, and the optimizer steps in between.

They say which operation would have been next, in which iteration a rank is, and who issued other operations than its
peers. A token is a 32-bit hash of communicator (name and members, so that it survives a re-initialisation) and
signature. The operations in flight are taken from each snapshot, since a posted receive may stay open for thousands of
others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.period import MOST_KEPT, Sequence
from whichrank.model.kinds import Kind, is_message
from whichrank.model.picture import Bools
from whichrank.model.places import starts
from whichrank.model.roles import role_of_description
from whichrank.model.sequence import Shapes, Tokens
from whichrank.model.signature import Columns, mix, signatures
from whichrank.model.stable_hash import stable_hash
from whichrank.model.telemetry import CommInfo
from whichrank.store.completed import Completed
from whichrank.store.growing import Growing
from whichrank.store.marks import Marks, Period
from whichrank.store.rank_columns import RankColumns
from whichrank.store.settled import Settled
from whichrank.store.steps import Steps
from whichrank.store.token_table import MEANING, TokenTable

CLOSING: Final = frozenset({Kind.ALL_REDUCE, Kind.ALL_REDUCE_COALESCED, Kind.REDUCE})
"""What sums gradients over data-parallel ranks closes an iteration. FSDP scatters and gathers, layer by layer."""
LEAST_GROUPS = 2
"""That alternate in a period: else it may be a layer and no iteration."""
MOST_TOKENS = 1 << 27
"""Kept of all ranks together: 512 MiB. Of 8,192 ranks and fewer each has what it may have."""
LEAST_KEPT = 2048
"""Of a rank, however many there are: a longer iteration than a third of this is then found by optimizer steps only."""
LEAST_AFTER_LOSS = 512
"""A past of fewer operations, behind a loss, makes the usual look new."""


@dataclass(frozen=True)
class Issued:
    """Operations that ranks have issued.

    Attributes:
        rank: Who, (n,).
        comm: The index of the communicator of each, (n,).
        ops: The fields ordinal and count of each, and those that `signatures` needs.
    """

    rank: NDArray[Any]
    comm: NDArray[np.int64]
    ops: Columns

    @cached_property
    def signs(self) -> NDArray[np.uint64]:
        """Their signatures."""
        return self.ops.signs if isinstance(self.ops, Completed) else signatures(self.ops)


class Sequences:
    """Token sequences of all ranks, and what tokens mean.

    A sequence keeps a bounded number of tokens of each rank (`detect.period`), and the table of tokens those of lately
    (`store.token_table`); what else is kept grows with the communicators that the job has.

    Attributes:
        steps: Optimizer steps of all ranks.
        marks: Where iterations begin, of ranks that make none.
        edited: Ranks that have issued something else than their period says, for whoever deals with that to take out.
    """

    def __init__(self) -> None:
        self.steps = Steps()
        self.marks = Marks()
        self.edited: set[int] = set()
        self._of: dict[int, Sequence] = {}
        self._settled = Settled()
        self._comm_key: list[int] = []
        self._key_column = Growing(np.uint64)
        self._members: dict[int, list[int]] = {}
        self._table = TokenTable()
        self._keep = MOST_KEPT
        self._desc: list[tuple[str, int]] = []

    def expect(self, ranks: int) -> None:
        """The job has so many ranks: of a large one less is kept of each that comes from now on."""
        self._keep = min(MOST_KEPT, max(LEAST_KEPT, MOST_TOKENS // max(ranks, 1)))

    def add_comms(self, info: list[CommInfo]) -> None:
        """Learn communicators by their index in `info`."""
        for c in info[len(self._comm_key) :]:
            key = stable_hash(c.name, np.array(c.members, np.int64))
            self._comm_key.append(key)
            self._key_column.append(np.array([key], np.uint64))
            self._desc.append((c.desc, c.size))
            self._members[key] = list(c.members)

    def tokens_of(self, issued: Issued) -> Tokens:
        """The token of each of these operations."""
        keys = self._key_column.rows[issued.comm]
        return (mix(keys, issued.signs) >> np.uint64(32)).astype(np.uint32)

    def _learn(self, issued: Issued, tokens: Tokens, which: NDArray[np.int64]) -> None:
        """Learn what the tokens of some operations mean, by their places."""
        if not len(which):
            return
        values, first = np.unique(tokens[which], return_index=True)
        unknown = self._table.unknown(values)
        if not len(unknown):
            return
        meanings = np.zeros(len(unknown), MEANING)
        for row, at in enumerate(which[first[unknown]].tolist()):
            comm, kind = int(issued.comm[at]), int(issued.ops["kind"][at])
            description, size = self._desc[comm]
            closes = role_of_description(description) in ("dp", "edp") and kind in CLOSING
            sign = (kind, int(issued.ops["count"][at])) if is_message(kind) else (int(issued.signs[at]),)
            group = -1 if is_message(kind) else self._comm_key[comm]
            peer = int(issued.ops["peer"][at]) if is_message(kind) else -1
            meanings[row] = self._comm_key[comm], group, stable_hash(description, size, *sign), peer, closes
        self._table.add(values[unknown], meanings, self._settled.tokens)

    @property
    def meanings(self) -> int:
        """A number that changes when a token means something new, or nothing any more."""
        return self._table.version

    def are_of_one(self, tokens: Tokens, token: int) -> Bools:
        """Which of these are of the communicator of this one? Send/recv are all of none."""
        return self._table.are_of_one(tokens, token)

    def group_of(self, token: int) -> int:
        """The communicator of a token (a key that survives re-initialisation), -1 for send/recv."""
        return self._table.group_of(token)

    def groups_of(self, tokens: Tokens) -> NDArray[np.int64]:
        """As `group_of`, for each of these."""
        return self._table.groups_of(tokens)

    def members_of(self, key: int) -> list[int]:
        """The ranks of a communicator; empty if it is not known."""
        return self._members.get(key, [])

    def key_of(self, comm: int) -> int:
        """The key of a communicator by its index."""
        return self._comm_key[comm]

    def shape_of(self, token: int) -> int:
        """What a token is on any communicator of the same description and size."""
        return self._table.shape_of(token)

    def shapes_of(self, tokens: Tokens) -> Shapes:
        """As `shape_of`, for each of these."""
        return self._table.shapes_of(tokens)

    def feed(self, rank: NDArray[Any], comm: NDArray[np.int64], ops: Columns) -> None:
        """Take completed operations or operations in flight of any ranks."""
        self.feed_together([Issued(rank, comm, ops)])

    def feed_together(self, parts: list[Issued]) -> list[Tokens]:
        """The same of several parts: what has completed and what is in flight belong together, else there is a gap.

        Returns:
            The tokens of each part.
        """
        of_parts = [self.tokens_of(part) for part in parts]
        begins = np.cumsum([0, *map(len, of_parts)])

        def learn(places: NDArray[np.int64]) -> None:
            for part, tokens, begin, end in zip(parts, of_parts, begins, begins[1:], strict=False):
                self._learn(part, tokens, places[(places >= begin) & (places < end)] - begin)

        rank = np.concatenate([part.rank.astype(np.int64) for part in parts])
        ordinals = np.concatenate([part.ops["ordinal"].astype(np.int64) for part in parts])
        self.feed_tokens(rank, ordinals, np.concatenate(of_parts), learn)
        return of_parts

    def feed_tokens(
        self, rank: NDArray[np.int64], ordinals: NDArray[np.int64], tokens: Tokens,
        learn: Callable[[NDArray[np.int64]], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """The same as tokens.

        Args:
            rank: Who has issued each, (n,).
            ordinals: Which of its operations it is, (n,).
            tokens: What it is, (n,).
            learn: Called with the places of those that may mean nothing yet, before they are taken.
        """
        if not len(rank):
            return
        order = np.arange(len(rank))
        if (taken := self._settled.take(rank, ordinals, tokens)) is None:
            order = _each_once(rank << 32 | ordinals)
            rank, ordinals, tokens = rank[order], ordinals[order], tokens[order]
            taken = self._settled.take(rank, ordinals, tokens)
        assert taken is not None, "in order, each once"
        dealt_with, others, to_tell = taken
        news = ~dealt_with
        learn(order[news])
        for of in others:
            self._settled.leave(of, self._of[of])
        for of in to_tell:
            self._settled.tell(of, self._of[of])
        rank, tokens, ordinals = rank[news], tokens[news], ordinals[news]
        if not len(rank):
            return
        begins = starts(rank).tolist()
        for begin, end in zip(begins, [*begins[1:], len(rank)], strict=True):
            self._feed(int(rank[begin]), ordinals[begin:end], tokens[begin:end])

    def _feed(self, rank: int, ordinals: NDArray[np.int64], tokens: Tokens) -> None:
        """Take operations of a rank that is not settled; it may be now."""
        sequence = self.sequence(rank)
        before = sequence.edits[-1:]
        sequence.feed(ordinals, tokens)
        if sequence.edits[-1:] != before:
            self.edited.add(rank)
        if sequence.is_settled:
            self._settled.enter(rank, sequence)
            self._tell_marks(rank, sequence)

    def _tell_marks(self, rank: int, sequence: Sequence) -> None:
        period = sequence.template
        if self.marks.wants(rank, period):
            shapes, peers = self._ends_of(rank, period)
            groups, closes = self.groups_of(period), self._table.close(period)
            self.marks.learn(rank, Period(period, shapes, groups, closes, peers))

    def _ends_of(self, rank: int, period: Tokens) -> tuple[Shapes, NDArray[np.int64]]:
        """The shapes of operations, where messages differ by the way to the peer; the peers of messages, -1 of others.

        Example: all ranks of a ring send to the one after them, so all do the same; and a stage of a pipeline does
        something else with the stage before it than with the one behind it.
        """
        shapes, (comms, places) = self.shapes_of(period), self._table.peers_of(period)
        peers = np.full(len(period), -1, np.int64)
        for key, place in np.unique(np.stack((comms, places), axis=1)[places >= 0], axis=0).tolist():
            members = self._members.get(key, [])
            if place < len(members) and rank in members:
                at = (comms == key) & (places == place)
                offset = (place - members.index(rank)) % len(members)
                shapes[at] = (mix(shapes[at].view(np.uint64), np.full(1, offset)) >> np.uint64(1)).view(np.int64)
                peers[at] = members[place]
        return shapes, peers

    def before(
        self, rank: NDArray[np.int64], ordinal: NDArray[np.int64], count: int
    ) -> tuple[NDArray[np.uint32], Bools, Bools]:
        """The tokens of the operations before some.

        Args:
            rank: Who has issued these, (n,).
            ordinal: How many operations of the rank were begun before each of them, (n,).
            count: How many are wanted.

        Returns:
            The tokens, the nearest first, (n, count); where they are known, (n,); where they may be known later, (n,).
        """
        tokens, is_known = self._settled.before(rank, ordinal, count)
        is_late = np.zeros(len(rank), np.bool_)
        for at in np.flatnonzero(~is_known).tolist():
            sequence = self._of.get(int(rank[at]))
            if sequence is None:
                continue
            end = int(ordinal[at]) - (sequence.last_ordinal - len(sequence.tokens))
            is_late[at] = end > len(sequence.tokens)
            if count <= end and not is_late[at]:
                tokens[at], is_known[at] = sequence.tokens[end - count : end][::-1], True
        return tokens, is_known, is_late

    def beginnings(self, done: Completed, tokens: Tokens, ranks: RankColumns) -> np.ndarray[Any, Any]:
        """The iterations that begin with some of these operations, of ranks that make no steps, as `Marks.feed`."""
        self.marks.look(done, tokens)
        for rank in self.marks.take_waiting():
            if self._settled.has(rank):
                self._tell_marks(rank, self.sequence(rank))
        return self.marks.feed(done, tokens, ranks, self.count_before, self.before)

    def sequence(self, rank: int) -> Sequence:
        """The sequence of a rank."""
        if rank not in self._of:
            self._of[rank] = Sequence(self._keep, closes=self._table.close)
        sequence = self._of[rank]
        if self._settled.has(rank):
            self._settled.tell(rank, sequence)
        return sequence

    def are_settled(self, ranks: NDArray[np.int64]) -> Bools:
        """Which of these ranks go on as their periods say, for as long as that was so before."""
        return self._settled.are_in(ranks)

    def expect_loss(self, rank: int) -> None:
        """Operations of this rank were lost: the gap that the next ones leave will never be filled."""
        sequence = self.sequence(rank)
        self.marks.lose(rank)
        sequence.expect_loss()
        if self._settled.has(rank):
            self._settled.leave(rank, sequence)

    def period_of(self, rank: int) -> int:
        """Operations in one period of a rank; 0 while it is not known."""
        return self._of[rank].period if rank in self._of else 0

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        self.steps.forget(rank)
        self.marks.forget(rank)
        self._of.pop(rank, None)
        self._settled.forget(rank)
        self.edited.discard(rank)

    def up_to(self, rank: int, ordinal: int) -> Tokens:
        """The rank's tokens up to and with one of its operations; empty if that is not known, or too little of it."""
        s = self.sequence(rank)
        n = len(s.tokens) - (s.last_ordinal - ordinal)
        if s.is_cut and n < LEAST_AFTER_LOSS:
            return s.tokens[:0]
        return s.tokens[:n] if 0 < n <= len(s.tokens) else s.tokens[:0]

    def issued_since(self, comm: int, rank: int, ordinal: int) -> int:
        """Operations on this communicator among a rank's tokens from this operation on."""
        s = self.sequence(rank)
        first = s.last_ordinal - len(s.tokens) + 1
        ours = self._table.of_group(self._comm_key[comm])
        return int(np.isin(s.tokens[max(ordinal - first, 0) :], ours).sum())

    def comm_of_key(self, key: int) -> int:
        """Index of the latest communicator with this key."""
        return len(self._comm_key) - 1 - self._comm_key[::-1].index(key)

    def per_iteration(self, rank: int, key: int) -> int:
        """Operations on a communicator in one iteration of a rank, by its period; 0 while that is not known."""
        s = self.sequence(rank) if rank in self._of else None
        return int(np.count_nonzero(self.groups_of(s.template) == key)) if s else 0

    def count_before(self, rank: int, token: int, ordinal: int) -> int:
        """How often a rank has issued a token, once in each period, before the operation with this ordinal."""
        return self.sequence(rank).count_before(token, ordinal)

    def iteration_of(self, rank: int) -> int | None:
        """Iterations that a rank has completed: its optimizer's steps, else as its period says; None if neither does.

        A period is an iteration for sure only if operations of several groups alternate in it: else it may be a layer.
        """
        if steps := self.steps.count(rank):
            return steps
        s = self.sequence(rank) if rank in self._of else None
        if s is None or not s.is_whole or len(np.unique(self.groups_of(s.template))) < LEAST_GROUPS:
            return None
        return s.iterations()


def _each_once(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of these keys in their order, of equal ones the first: what is complete may be in flight before."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    return np.asarray(order[np.concatenate(([True], key[1:] != key[:-1]))])
