"""What tokens mean: the communicator of an operation, what it is on any like that, whether it closes an iteration.

A job whose shapes vary, as sequence lengths do, makes new tokens for ever. So the table has two generations: when the
new one is full it becomes the old one, and what is issued again moves over. A token that was in neither for so long is
forgotten, and means nothing but itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whichrank.model.places import values_of
from whichrank.model.sequence import Shapes, Tokens

MOST_OF_A_GENERATION: Final = 1 << 19
"""Tokens; of two generations about 250 MiB."""


class Meaning(NamedTuple):
    """Of one token.

    Attributes:
        group: The key of its communicator; -1 of a message, which has none.
        shape: What it is on any communicator of the same description and size.
        closes: It closes an iteration.
    """

    group: int
    shape: int
    closes: bool


class TokenTable:
    """The meaning of the tokens that the job has issued lately.

    Args:
        most: Tokens of a generation.

    Attributes:
        version: Changes with what is in it.
    """

    def __init__(self, most: int = MOST_OF_A_GENERATION) -> None:
        self._most = most
        self._new: dict[int, Meaning] = {}
        self._old: dict[int, Meaning] = {}
        self.version = 0
        self._sorted: tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None

    def unknown(self, tokens: Iterable[int]) -> list[int]:
        """Places of those that mean nothing yet; the others are kept for longer."""
        found = []
        for place, token in enumerate(tokens):
            if token in self._new:
                continue
            if token in self._old:
                self._new[token] = self._old.pop(token)
            else:
                found.append(place)
        return found

    @property
    def is_full(self) -> bool:
        """Whether the new generation is."""
        return len(self._new) >= self._most

    def turn(self, in_use: Iterable[int]) -> None:
        """Begin a new generation.

        Args:
            in_use: Tokens that are issued all the time, without anybody asking what they mean; half of a generation of
                them is kept.
        """
        self._old, self._new = self._new, {}
        self.version += 1
        for token in islice(in_use, self._most // 2):
            if token in self._old:
                self._new[token] = self._old.pop(token)

    def add(self, token: int, meaning: Meaning) -> None:
        """Learn one that was unknown."""
        self._new[token] = meaning
        self.version += 1

    def group_of(self, token: int) -> int:
        """The key of its communicator; -1 of a message, and where that is not known."""
        meaning = self._meaning(token)
        return meaning.group if meaning else -1

    def are_of_one(self, a: int, b: int) -> bool:
        """Whether both are known, and of one communicator, or both of none."""
        one, other = self._meaning(a), self._meaning(b)
        return one is not None and other is not None and one.group == other.group

    def shape_of(self, token: int) -> int:
        """What it is on any communicator like its own; itself where that is not known."""
        meaning = self._meaning(token)
        return meaning.shape if meaning else token

    def closes(self, token: int) -> bool:
        """Whether it closes an iteration."""
        meaning = self._meaning(token)
        return meaning is not None and meaning.closes

    def shapes_of(self, tokens: Tokens) -> Shapes:
        """As `shape_of`, for each of these."""
        known, shapes, _ = self._columns()
        return values_of(tokens.astype(np.int64), known, shapes, tokens)

    def of_group(self, group: int) -> NDArray[np.int64]:
        """All tokens of a communicator."""
        known, _, groups = self._columns()
        found: NDArray[np.int64] = known[groups == group]
        return found

    def _meaning(self, token: int) -> Meaning | None:
        return self._new.get(token) or self._old.get(token)

    def _columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Tokens in order, and the shape and the group of each."""
        if self._sorted is None or self._sorted[0] != self.version:
            both = self._old | self._new
            tokens = np.fromiter(both.keys(), np.int64, len(both))
            order = np.argsort(tokens)
            groups = np.fromiter((meaning.group for meaning in both.values()), np.int64, len(both))
            shapes = np.fromiter((meaning.shape for meaning in both.values()), np.int64, len(both))
            self._sorted = self.version, tokens[order], shapes[order], groups[order]
        return self._sorted[1:]
