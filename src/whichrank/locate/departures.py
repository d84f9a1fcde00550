"""Where a rank departs from its own past: the first witness against a deviant.

A rank's past says what may come next: everything that ever followed the same context. An operation that never did is a
departure. What all members of a group share is the program's doing; what one does alone is its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whichrank.model.sequence import Tokens


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
    x: Tokens, window: int = 256, kept: int = 4096, context: int = 64, support: int = 3, *, usual_since: bool = False
) -> frozenset[tuple[int, int]] | None:
    """Where the latest operations of a rank are not what its own past allows: pairs of the token before and the token.

    It asks `expected` for each of them, all at once. What was new once and has come again since is no departure: a
    young past takes the end of every loop for one.

    Args:
        x: A rank's tokens, oldest first, up to and with the operation in question.
        window: How many of the latest are looked at.
        kept: How far back the past is asked.
        context: See `expected`.
        support: See `expected`.
        usual_since: Those too that have come again.

    Returns:
        None if the past says nothing about any of them.
    """
    x = x[-kept:]
    begin = max(1, len(x) - window)
    alike = _alike(x, begin, context + 1)
    found: set[tuple[int, int]] = set()
    asked = 0
    for end in range(begin, len(x)):
        # How far what ends at each earlier place is like what ends here, one step on from the place before.
        if end > begin:
            alike = np.concatenate(([1], np.minimum(alike, context) + 1)) * (x[: end - 1] == x[end - 1])
        enough = np.flatnonzero(np.cumsum(np.bincount(alike, minlength=context + 2)[::-1]) >= support)
        length = context + 1 - int(enough[0]) if len(enough) else 0
        if length:
            asked += 1
            is_new = not bool((x[1:end][alike >= length] == x[end]).any())
            if is_new and (usual_since or not _comes_again(x, end, length)):
                found.add((int(x[end - 1]), int(x[end])))
    return frozenset(found) if asked else None


def _comes_again(x: Tokens, end: int, length: int) -> bool:
    """Did the same follow the same later on? Then it was new to the past, and usual in the program."""
    places = end + 1 + np.flatnonzero(x[end + 1 :] == x[end])
    for back in range(1, length + 1):
        places = places[x[places - back] == x[end - back]]
        if not len(places):
            return False
    return True


def _alike(x: Tokens, end: int, context: int) -> NDArray[np.int64]:
    """For each place before `end - 1`, how many tokens up to it equal those up to `end - 1`; `context` at most."""
    alike = np.zeros(max(end - 1, 0), np.int64)
    going = np.ones(len(alike), np.bool_)
    for back in range(min(context, end - 1)):
        going[back:] &= x[: len(alike) - back] == x[end - 1 - back]
        going[:back] = False
        if not going.any():
            break
        alike += going
    return alike
