"""What tokens mean: the communicator of an operation, what it is on any like that, whether it closes an iteration.

A job whose shapes vary, as sequence lengths do, makes new tokens for ever. So the table has generations: when the
present one is full a new one begins, and what was not issued in the one before is forgotten. A token that is forgotten
means nothing but itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.picture import Bools
from whichrank.model.places import places_in_sorted
from whichrank.model.sequence import Shapes, Tokens

MOST_OF_A_GENERATION: Final = 1 << 19
"""Tokens; of two generations 34 MiB."""
MEANING: Final = np.dtype([("comm", "i8"), ("group", "i8"), ("shape", "i8"), ("peer", "i4"), ("closes", "?")])
"""Of one token.

`comm` is the key of its communicator; `group` the same, but -1 of a message, in which not all take part; `shape` what
it is on any communicator of the same description and size; `peer` the place there of the other end of a message, -1 of
other operations; `closes`: it closes an iteration.
"""
_UNKNOWN: Final = -2
"""The key of no communicator, and not what messages have instead of one."""


class TokenTable:
    """The meaning of the tokens that the job has issued lately: columns, in the order of the tokens.

    Args:
        most: Tokens of a generation.

    Attributes:
        version: Changes with what is in it.
    """

    def __init__(self, most: int = MOST_OF_A_GENERATION) -> None:
        self._most = most
        self.version = 0
        self._tokens = np.zeros(0, np.uint32)
        self._comms, self._peers = np.zeros(0, np.int64), np.zeros(0, np.int32)
        self._groups, self._shapes = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._closes, self._is_new = np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        self._new = 0  # how many are of the present generation

    def __len__(self) -> int:
        return len(self._tokens)

    def unknown(self, tokens: Tokens) -> NDArray[np.int64]:
        """Places of those that mean nothing yet; the others are kept for longer.

        Args:
            tokens: Each once.
        """
        at = places_in_sorted(tokens, self._tokens)
        self._keep(at[at >= 0])
        return np.flatnonzero(at < 0)

    def add(self, tokens: Tokens, meanings: np.ndarray[Any, Any], in_use: Callable[[], Tokens]) -> None:
        """Learn some that were unknown.

        Args:
            tokens: Each once.
            meanings: Of each, rows of MEANING.
            in_use: Asked for if a new generation begins: tokens, each once, that are issued all the time, without
                anybody asking what they mean. Of these half a generation is kept.
        """
        at_once = self._most // 2
        for begin in range(0, len(tokens), at_once):
            some, of_some = tokens[begin : begin + at_once], meanings[begin : begin + at_once]
            if self._new + len(some) > self._most:
                self._turn(in_use())
            order = np.argsort(some)
            some, of_some = some[order], of_some[order]
            at = np.searchsorted(self._tokens, some)
            self._tokens = np.insert(self._tokens, at, some)
            self._comms = np.insert(self._comms, at, of_some["comm"])
            self._peers = np.insert(self._peers, at, of_some["peer"])
            self._groups = np.insert(self._groups, at, of_some["group"])
            self._shapes = np.insert(self._shapes, at, of_some["shape"])
            self._closes = np.insert(self._closes, at, of_some["closes"])
            self._is_new = np.insert(self._is_new, at, values=True)
            self._new += len(some)
            self.version += 1

    def _turn(self, in_use: Tokens) -> None:
        """Begin a new generation."""
        kept = self._is_new
        self._tokens, self._groups = self._tokens[kept], self._groups[kept]
        self._comms, self._peers = self._comms[kept], self._peers[kept]
        self._shapes, self._closes = self._shapes[kept], self._closes[kept]
        self._is_new, self._new = np.zeros(len(self._tokens), np.bool_), 0
        at = places_in_sorted(in_use, self._tokens)
        self._keep(at[at >= 0][: self._most // 2])
        self.version += 1

    def _keep(self, at: NDArray[np.int64]) -> None:
        """Those in these places, each once, are of the present generation."""
        self._new += len(at) - int(np.count_nonzero(self._is_new[at]))
        self._is_new[at] = True

    def group_of(self, token: int) -> int:
        """The key of its communicator; -1 of a message, and where that is not known."""
        return int(self.groups_of(np.array([token], np.uint32))[0])

    def groups_of(self, tokens: Tokens) -> NDArray[np.int64]:
        """As `group_of`, for each of these."""
        groups = self._found(tokens, self._groups, _UNKNOWN)
        return np.where(groups == _UNKNOWN, -1, groups)

    def are_of_one(self, tokens: Tokens, token: int) -> Bools:
        """Which of these are known and of the communicator of this one, or of none as it is."""
        groups = self._found(np.append(tokens, np.uint32(token)), self._groups, _UNKNOWN)
        return np.asarray((groups[:-1] == groups[-1]) & (groups[-1] != _UNKNOWN))

    def shape_of(self, token: int) -> int:
        """What it is on any communicator like its own; itself where that is not known."""
        return int(self.shapes_of(np.array([token], np.uint32))[0])

    def shapes_of(self, tokens: Tokens) -> Shapes:
        """As `shape_of`, for each of these."""
        return self._found(tokens, self._shapes, tokens.astype(np.int64))

    def peers_of(self, tokens: Tokens) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The communicator of each message and the place of its other end there; both -1 of what is no message."""
        peers = self._found(tokens, self._peers, -1)
        return np.where(peers >= 0, self._found(tokens, self._comms, -1), -1), peers

    def close(self, tokens: Tokens) -> Bools:
        """Which of these close an iteration."""
        return self._found(tokens, self._closes, missing=False)

    def of_group(self, group: int) -> Tokens:
        """All tokens of a communicator."""
        found: Tokens = self._tokens[self._groups == group]
        return found

    def _found(self, tokens: Tokens, column: NDArray[Any], missing: Any) -> NDArray[Any]:
        at = places_in_sorted(tokens, self._tokens)
        return np.where(at >= 0, column[at], missing) if len(column) else np.full(len(tokens), missing, column.dtype)
