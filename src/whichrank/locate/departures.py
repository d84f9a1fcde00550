"""Where a rank departs from its own past: the first witness against a deviant.

A rank's past says what may come next: everything that ever followed the same context. An operation that never did is a
departure. What all members of a group share is the program's doing; what one does alone is its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.sequence import Tokens

ANSWERS_KEPT: Final = 256
"""Of that many patterns; each is kept as numbers of its operations, 16 KiB at most by default."""


@dataclass(frozen=True)
class Departures:
    """Where a rank departed from its past: pairs of the token before and the token.

    Attributes:
        own: Those that have not come again since.
        ever: Those that have come again too.
    """

    own: frozenset[tuple[int, int]]
    ever: frozenset[tuple[int, int]]


def expected(x: Tokens, context: int = 64, support: int = 3) -> tuple[frozenset[int], int]:
    """What a rank's own past says may come after `x`: everything that ever followed the longest recurring context.

    A context must have come `support` times, so that a rare event (a log line every ten iterations) is one of several
    continuations and not the only one that is remembered.

    Args:
        x: Tokens up to the point in question, oldest first.
        context: Tokens to match at most, beside the last one.
        support: Earlier occurrences that make a context count.

    Returns:
        The tokens that followed, and the context's length; nothing and 0 if the past says nothing.
    """
    n = len(x)
    if n < 2:
        return frozenset(), 0
    ends = np.flatnonzero(x[:-1] == x[-1])
    if len(ends) < support:
        return frozenset(), 0
    length = 1
    while length <= min(context, n - 1):
        longer = ends[ends >= length]
        longer = longer[x[longer - length] == x[n - 1 - length]]
        if len(longer) < support:
            break
        ends, length = longer, length + 1
    return frozenset(x[ends + 1].tolist()), length


def departures(
    x: Tokens, window: int = 256, kept: int = 4096, context: int = 64, support: int = 3
) -> Departures | None:
    """Where the latest operations of a rank are not what its own past allows.

    It asks `expected` for each of them, all in one pass: the contexts of an operation are those of the one before it,
    one token longer. What was new once and has come again since is no departure: a young past takes the end of every
    loop for one.

    What a past says depends on nothing but which operations are equal. So ranks that have done the same, each on
    communicators of its own, are answered by one pass: `abcabx` and `uvwuvy` are both 0 1 2 0 1 3.

    Args:
        x: A rank's tokens, oldest first, up to and with the operation in question.
        window: How many of the latest are looked at.
        kept: How far back the past is asked.
        context: See `expected`.
        support: See `expected`.

    Returns:
        None if the past says nothing about any of them.
    """
    tokens, numbers = _numbered(x[-kept:])
    found = _departures(numbers.tobytes(), window, context, support)
    if found is None:
        return None
    own, ever = (frozenset((tokens[a], tokens[b]) for a, b in pairs) for pairs in (found.own, found.ever))
    return Departures(own, ever)


def _numbered(x: Tokens) -> tuple[list[int], Tokens]:
    """The tokens in the order in which they come first, and of each place the number of its token in that order."""
    values, first, of = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    numbers = np.empty(len(order), np.uint32)
    numbers[order] = np.arange(len(order))
    return values[order].tolist(), numbers[of.reshape(-1)]


@lru_cache(ANSWERS_KEPT)
def _departures(numbers: bytes, window: int, context: int, support: int) -> Departures | None:
    """See `departures`; ranks that hang are asked about the same operations at every snapshot."""
    x = np.frombuffer(numbers, np.uint32)
    begin = max(1, len(x) - window)
    if len(x) <= begin:
        return None
    places = _places_of_each(x)
    alike = np.zeros(len(x) + 1, np.int64)  # by place + 1: how far what ends there is like what ended here one step ago
    alike[1 : max(begin - 1, 0)] = _alike(x[: begin - 1], context + 1)
    own: set[tuple[int, int]] = set()
    ever: set[tuple[int, int]] = set()
    asked = 0
    here = np.arange(max(begin - 2, 0))
    for end in range(begin, len(x)):
        before = here
        here = places[int(x[end - 1])]
        here = here[: np.searchsorted(here, end - 1)]
        length = np.minimum(alike[here], context) + 1
        alike[before + 1] = 0
        alike[here + 1] = length
        if len(length) < support:
            continue
        asked += 1
        enough = np.partition(length, -support)[-support]
        if not (x[here[length >= enough] + 1] == x[end]).any():
            ever.add((int(x[end - 1]), int(x[end])))
            if not _comes_again(x, end, int(enough)):
                own.add((int(x[end - 1]), int(x[end])))
    return Departures(frozenset(own), frozenset(ever)) if asked else None


def _places_of_each(x: Tokens) -> dict[int, NDArray[np.int64]]:
    """For each token where it stands, ascending."""
    values, first = np.unique(np.sort(x), return_index=True)
    return dict(zip(values.tolist(), np.split(np.argsort(x, kind="stable"), first[1:]), strict=True))


def _comes_again(x: Tokens, end: int, length: int) -> bool:
    """Did the same follow the same later on? Then it was new to the past, and usual in the program."""
    places = end + 1 + np.flatnonzero(x[end + 1 :] == x[end])
    for back in range(1, length + 1):
        places = places[x[places - back] == x[end - back]]
        if not len(places):
            return False
    return True


def _alike(x: Tokens, context: int) -> NDArray[np.int64]:
    """For each place but the last, how many tokens up to it equal those up to the last; `context` at most."""
    alike = np.zeros(max(len(x) - 1, 0), np.int64)
    going = np.ones(len(alike), np.bool_)
    for back in range(min(context, len(alike))):
        going[back:] &= x[: len(alike) - back] == x[len(x) - 1 - back]
        going[:back] = False
        if not going.any():
            break
        alike += going
    return alike
