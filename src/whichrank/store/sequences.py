"""What every rank issued, as token sequences, and the optimizer steps in between.

They say which operation would have been next, in which iteration a rank is, and who issued other operations than its
peers. A token is a 32-bit hash of communicator (name and members, so that it survives a re-initialisation) and
signature. The operations in flight are taken from each snapshot, since a posted receive may stay open for thousands of
others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.period import Sequence
from whichrank.model.kinds import is_collective, is_message
from whichrank.model.places import values_of
from whichrank.model.roles import role_of_description
from whichrank.model.sequence import Shapes, Tokens
from whichrank.model.signature import mix, signatures
from whichrank.model.stable_hash import stable_hash
from whichrank.model.telemetry import CommInfo
from whichrank.store.growing import Growing
from whichrank.store.steps import Steps

LEAST_GROUPS = 2
"""That alternate in a period: else it may be a layer and no iteration."""
LEAST_AFTER_LOSS = 512
"""A past of fewer operations, behind a loss, makes the usual look new."""


class Sequences:
    """Token sequences of all ranks, and what tokens mean.

    A sequence keeps a bounded number of tokens of each rank (`detect.period`); the tables of tokens grow with the
    communicators and the signatures that the job has.

    Attributes:
        steps: Optimizer steps of all ranks.
        edited: Ranks that have once issued something else than their period says.
    """

    def __init__(self) -> None:
        self.steps = Steps()
        self.edited: set[int] = set()
        self._of: dict[int, Sequence] = {}
        self._comm_key: list[int] = []
        self._key_column = Growing(np.uint64)
        self._members: dict[int, list[int]] = {}
        self._token_comm: dict[int, int] = {}
        self._token_shape: dict[int, int] = {}
        self._shapes = np.zeros(0, np.int64), np.zeros(0, np.int64)  # the same as columns, tokens ascending
        self._desc: list[tuple[str, int]] = []
        self._closing: set[int] = set()

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
        if len(self._shapes[0]) != len(self._token_shape):
            known = np.fromiter(self._token_shape.keys(), np.int64, len(self._token_shape))
            shapes = np.fromiter(self._token_shape.values(), np.int64, len(known))
            order = np.argsort(known)
            self._shapes = known[order], shapes[order]
        return values_of(tokens.astype(np.int64), *self._shapes, tokens)

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
                self.edited.add(of)

    def sequence(self, rank: int) -> Sequence:
        """The sequence of a rank."""
        if rank not in self._of:
            self._of[rank] = Sequence(closes=self._closing.__contains__)
        return self._of[rank]

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        self.steps.forget(rank)
        self._of.pop(rank, None)
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
        ours = [t for t, key in self._token_comm.items() if key == self._comm_key[comm]]
        return int(np.isin(s.tokens[max(ordinal - first, 0) :], ours).sum())

    def comm_of_key(self, key: int) -> int:
        """Index of the latest communicator with this key."""
        return len(self._comm_key) - 1 - self._comm_key[::-1].index(key)

    def per_iteration(self, rank: int, key: int) -> int:
        """Operations on a communicator in one iteration of a rank, by its period; 0 while that is not known."""
        s = self._of.get(rank)
        return sum(self.group_of(t) == key for t in s.template.tolist()) if s else 0

    def iteration_of(self, rank: int) -> int | None:
        """Iterations that a rank has completed: its optimizer's steps, else as its period says; None if neither does.

        A period is an iteration for sure only if operations of several groups alternate in it: else it may be a layer.
        """
        if steps := self.steps.count(rank):
            return steps
        s = self._of.get(rank)
        if s is None or not s.is_whole or len({self.group_of(t) for t in s.template.tolist()}) < LEAST_GROUPS:
            return None
        return s.iterations()
