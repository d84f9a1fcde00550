"""What ranks have said, of which most say nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from whichrank.model.picture import Bools


class Texts:
    """A text by rank, most of them empty: those that are not are gone through, and no others.

    Args:
        size: How many ranks there are.
        said: The text of each rank that has one.
    """

    def __init__(self, size: int, said: Mapping[int, str]) -> None:
        self._size = size
        self._said = {rank: text for rank, text in said.items() if text}

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """Of all ranks, one after the other."""
        return cls(len(texts), dict(enumerate(texts)))

    def __getitem__(self, rank: int) -> str:
        return self._said.get(rank, "")

    def where(self, says: Callable[[str], object] = bool) -> Bools:
        """Of which ranks there is a text of which this holds, (R,)."""
        found = np.zeros(self._size, np.bool_)
        for rank, text in self._said.items():
            found[rank] = bool(says(text))
        return found

    def but_for(self, without: Bools) -> Texts:
        """As if these ranks had said nothing."""
        return Texts(self._size, {rank: text for rank, text in self._said.items() if not without[rank]})
