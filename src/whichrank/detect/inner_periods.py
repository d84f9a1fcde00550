"""With what iterations may begin in a period, also where the period is that of a log among several iterations.

An iteration begins with an *n-gram*: so many operations in a row, the last of which begins it. One operation is enough
where one comes once in an iteration. FSDP2 gathers and scatters the same layers again and again, and a stage of a
pipeline has one message for each microbatch: there two or three in a row do, such as the first message forward behind
the last one backward. Example: in ``aaabbb`` neither operation comes once, but an `a` behind a `b` does, and so does a
`b` behind an `a`. Only the shortest n-grams are of use: a log that comes between two operations of one hides it.

A job that logs in every tenth iteration repeats itself only after ten. Its period is ten iterations and the log, and of
these one would be measured. So n-grams are looked for that come again and again in a period, with the same operations
behind them nearly each time.

Example: in `a b a b a b a b x`, where `x` is a log and `b` closes an iteration, `a` and `b` come four times, and the
usual `a b` three times of these: either may begin an iteration. Layers repeat themselves too, inside of an iteration.
They are told from iterations by communicators: an iteration has them all, or at least that which closes it. A loop of
messages is taken for microbatches if there are others outside of it: a log is no message. Where no operation closes an
iteration, one more behind a few repetitions is taken for what ends an iteration of as many microbatches: people log in
every tenth or hundredth iteration, and divide batches by powers of two. The rest is for whoever knows times: iterations
are all about as long, and layers are not, since the backward pass takes twice as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.iterations import Bools, Ints
from whichrank.model.sequence import Shapes, Tokens

Ngram = tuple[int, ...]
"""Shapes of operations in a row, of which the last one begins an iteration."""

USUAL: Final = 0.75
"""Share of the repetitions that are alike: a log in every fourth iteration, or less often. In the others is more."""
LITTLE: Final = 0.2
"""Share of a period that is more than the usual repetition over and over: a log has few operations."""
LOG_EVERY: Final = 10
"""Iterations from one log to the next, at least, where no operation closes an iteration; and no power of two: so often
microbatches come in an iteration."""
LONGEST: Final = 8
"""Operations of an n-gram: a layer more or less is seen in so many."""


def may_begin(shapes: Shapes, groups: Ints, closes: Bools) -> list[set[Ngram]]:
    """With what iterations may begin.

    Args:
        shapes: The operations of a period, (p,), p > 0.
        groups: The communicator of each, -1 of messages, (p,).
        closes: Whether each closes an iteration, (p,).

    Returns:
        Sets of n-grams that come equally often, the most frequent first. The last set is of the period itself; it is
        empty where that has no n-gram which is short enough and comes once. The n-grams of a set are equally long.
    """
    found: dict[int, set[Ngram]] = {}
    for length, number in _numbered(shapes):
        order = np.argsort(number, kind="stable")
        _, first, counts = np.unique(number[order], return_index=True, return_counts=True)
        for count in np.setdiff1d(counts, list(found)).tolist():
            places = order[first[counts == count][:, None] + np.arange(count)]
            if count > 1:
                places = _of_iterations(places, shapes, groups, closes, least=length)
            if len(places):
                found[count] = {ngram_at(shapes, int(place), length) for place in places[:, 0]}
        if (counts == 1).all():
            break
    several = [found[count] for count in sorted(found, reverse=True) if count > 1]
    return [*several, found.get(1, set())]


def root_of(period: Tokens) -> Tokens:
    """The shortest sequence of which a period is several repetitions: a loop is followed by a longer period only."""
    n = len(period)
    for length in range(1, n // 2 + 1):
        if n % length == 0 and (period[length:] == period[:-length]).all():
            return period[:length]
    return period


def may_go_on(ngram: Ngram, shapes: Shapes, groups: Ints, closes: Bools) -> bool:
    """Whether iterations that have begun with an n-gram may do so in another period too, whose arguments these are.

    A log that came into it may be on a communicator of its own.
    """
    places = places_of(ngram, shapes)
    if len(places) < 2:
        return len(places) == 1
    in_usual = np.isin(groups, groups[_usual_places(shapes, places)])
    columns = shapes, np.where(in_usual, groups, groups[places[0]]), closes
    return len(_of_iterations(places[None, :], *columns, len(ngram))) > 0


def places_of(ngram: Ngram, shapes: Shapes) -> Ints:
    """Where an n-gram ends in a period, ascending."""
    ends = np.ones(len(shapes), np.bool_)
    for back, shape in enumerate(reversed(ngram)):
        ends &= np.roll(shapes, back) == shape
    return np.flatnonzero(ends)


def ngram_at(row: NDArray[Any], place: int, length: int) -> Ngram:
    """The n-gram that ends at a place of a period."""
    return tuple(row[np.arange(place - length + 1, place + 1) % len(row)].tolist())


def _numbered(shapes: Shapes) -> Iterator[tuple[int, Ints]]:
    """For each length of n-grams: a number for each place of a period, equal where equal n-grams end."""
    alone = number = np.unique(shapes, return_inverse=True)[1].reshape(-1)
    yield 1, number
    for length in range(2, min(LONGEST, len(shapes)) + 1):
        behind = np.roll(number, 1) * len(shapes) + alone
        number = np.unique(behind, return_inverse=True)[1].reshape(-1)
        yield length, number


def _of_iterations(places: Ints, shapes: Shapes, groups: Ints, closes: Bools, least: int) -> Ints:
    """Those n-grams at which iterations may begin, (m, count).

    Args:
        places: Where each ends, ascending, (n, count), count > 1.
        shapes: As in `may_begin`.
        groups: The same.
        closes: The same.
        least: Operations of an iteration.
    """
    apart = np.diff(places, axis=1, append=places[:, :1] + len(shapes))
    usual = np.sort(apart, axis=1)[:, apart.shape[1] // 2]
    regular = (apart.min(axis=1) == usual) & ((apart == usual[:, None]).mean(axis=1) >= USUAL)
    more = len(shapes) - apart.shape[1] * usual
    regular &= (usual >= least) & (more > 0) & (more <= LITTLE * len(shapes))
    which = [
        at for at in np.flatnonzero(regular).tolist()
        if _is_iteration(_usual_places(shapes, places[at]), len(places[at]), shapes, groups, closes)
    ]  # fmt: skip
    return places[which]


def _usual_places(shapes: Shapes, begins: Ints) -> Ints:
    """The places of a usual repetition, from one of these places to before the next one; empty if none is usual."""
    bounds = [*begins.tolist(), int(begins[0]) + len(shapes)]
    round_twice = np.concatenate((shapes, shapes))
    parts = [round_twice[begin:end] for begin, end in pairwise(bounds)]
    usual, count = Counter(part.tobytes() for part in parts).most_common(1)[0]
    which = [part.tobytes() for part in parts].index(usual)
    lengths = np.array([len(part) for part in parts])
    if count < USUAL * len(parts) or len(parts[which]) > lengths.min():
        return np.zeros(0, np.int64)
    if _has_twice(parts[int(lengths.argmax())], parts[which]):
        return np.zeros(0, np.int64)  # a log hides where an iteration begins
    return np.arange(bounds[which], bounds[which + 1]) % len(shapes)


def _has_twice(part: Shapes, usual: Shapes) -> bool:
    """Whether a repetition has at least twice as many of each operation as the usual one: it is two of them."""
    if len(usual) < 2 or len(part) < 2 * len(usual):
        return False
    return all(np.count_nonzero(part == one) >= 2 * np.count_nonzero(usual == one) for one in np.unique(usual))


def _is_iteration(places: Ints, count: int, shapes: Shapes, groups: Ints, closes: Bools) -> bool:
    """Whether what is in these places, and comes so often, may be an iteration, by its operations and communicators."""
    if not len(places):
        return False
    if count * np.count_nonzero(groups[places] < 0) < np.count_nonzero(groups < 0):
        return False
    if closes.any() and not closes.all():
        return bool(closes[places].any())
    if count < LOG_EVERY or count & (count - 1) == 0:
        return False
    return bool(np.isin(groups[groups >= 0], groups[places]).all())
