"""With what the iterations of ranks with the same period begin: found out by the operations of one of them.

An iteration begins with that n-gram before which a rank most likely computes: the longest time passes before it is
issued. Where a period may be several iterations, since there is a log in some of them, it is one that comes once in
each of these (`detect.inner_periods`), if they all take about as long.

Of a loop, such as the microbatches of the last stage of a pipeline, other ranks say how often it goes round in an
iteration. Which round comes first is said by the time before it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.inner_periods import LITTLE, USUAL, Ngram
from whichrank.model.sequence import Shapes, Tokens
from whichrank.model.stable_hash import stable_hash

Ints = NDArray[np.int64]
LEARNT_IN: Final = 2
"""Periods in which the longest pause of a rank is looked for, at least."""
LEARNT_IN_S: Final = 3.0
"""And so long: what a job does again and again before it trains is over sooner."""
LONG_PAUSE: Final = 4.0
"""Times the median: a longer time between two operations, of which all are alike, may end an iteration."""
LONGEST: Final = 0.98
"""Share of pauses that are no longer than the longest that count; half as long is no such one."""
LEAST_PAUSES: Final = 4
"""Of these, to be seen before they say something."""
REGULAR: Final = 0.9
"""Share of them that come at the same distance."""
MOST_ALIKE: Final = 256
"""Operations of an iteration in which all are alike."""
ALIKE: Final = 0.98
"""Share of operations from which all are alike; in the others is a log now and then."""
ALIKE_S: Final = 0.5
"""Seconds of operations that are all alike, without such pauses, that count as an iteration."""
EVEN: Final = 1.5
"""Times the lower quartile of the lengths of iterations that their upper one is at most; layers forward and backward
differ by a factor of two."""
EVEN_IF_ALONE: Final = 1.1
"""The same where each has a single operation, as layers have that are split over ranks."""
LEAST_ALONE_S: Final = 0.05
"""Seconds that such iterations take at least: layers that only go forward are even, and quick."""
EVEN_IF_CLOSED: Final = 4.0
"""The same where each has an operation that closes an iteration: what is to be told apart are buckets of one iteration.
"""


@dataclass(frozen=True)
class Beginning:
    """With what iterations begin.

    Attributes:
        ngram: The shapes of operations in a row; an iteration begins with the last of them.
        every: If more than one: only where the counter of that operation, modulo this, is `phase`.
        phase: That.
        loops: How often the n-gram comes in an iteration.
    """

    ngram: Ngram
    every: int = 1
    phase: int = 0
    loops: int = 1

    @property
    def sort(self) -> int:
        """A number, equal for ranks that begin with the same."""
        return stable_hash(np.array((*self.ngram, self.every), np.int64))


@dataclass(frozen=True)
class _Pause:
    """The time before something that may begin iterations.

    Attributes:
        begins: That; None where it does not.
        at: Where it comes among the operations that were seen, (n,).
        pause_ns: The median.
    """

    begins: Beginning | None
    at: Ints
    pause_ns: float


@dataclass
class Learning:
    """A sort of period of which it is not known yet with what iterations begin.

    Attributes:
        rank: Whose operations are looked at.
        may_begin: N-grams, in sets that come equally often in a period; the last set is of the period itself.
        shape_of: The shape of each token of the period.
        closes: Whether it has an operation that closes an iteration.
        length: Operations of a period.
        loops: How often it goes round in an iteration, as far as other ranks say.
        each: Operations of an iteration while it was known with what these began; 0: it was not.
        seen: Operations: token, ordinal, counter and time of issue of each, in parts.
        count: How many these are.
    """

    rank: int
    may_begin: list[set[Ngram]]
    shape_of: dict[int, int]
    closes: bool
    length: int
    loops: int = 1
    each: int = 0
    seen: list[tuple[Tokens, Ints, Ints, Ints]] = field(default_factory=list)
    count: int = 0

    def look(self, tokens: Tokens, ordinal: Ints, counter: Ints, issue_ns: Ints) -> bool:
        """See what the rank has issued, by ordinals, (n,) each. Whether that is enough."""
        if len(tokens):
            self.seen.append((tokens, ordinal, counter, issue_ns))
            self.count += len(tokens)
        lasted_ns = int(self.seen[-1][3][-1]) - int(self.seen[0][3][0]) if self.seen else 0
        return self.count > LEARNT_IN * self.length * self.loops and lasted_ns >= LEARNT_IN_S * 1e9

    def beginning(self) -> Beginning | None:
        """With what iterations begin; None where that is not said by what was seen: mostly it was something else."""
        tokens, ordinal, counter, issue_ns = (np.concatenate(column) for column in zip(*self.seen, strict=True))
        order = np.argsort(ordinal, kind="stable")
        shapes, counter, issue_ns = self._shapes(tokens[order]), counter[order], issue_ns[order]
        if self.length == 1:
            return self._alike(shapes, counter, issue_ns)
        pause_ns = np.diff(issue_ns, prepend=issue_ns[:1])
        for ngrams in self.may_begin:
            found = [self._before(ngram, _ends(shapes, ngram), counter, pause_ns) for ngram in sorted(ngrams)]
            long = max(found, key=lambda one: one.pause_ns, default=_Pause(None, np.zeros(0, np.int64), 0.0))
            if long.begins is None or not _explain(shapes, long.at):
                continue
            in_period = round(len(long.at) * self.length / len(shapes))
            is_as_before = in_period > 0 and self.length // in_period == self.each
            if ngrams is self.may_begin[-1] or is_as_before or self._are_iterations(issue_ns[long.at], in_period):
                return long.begins
        return None

    def _before(self, ngram: Ngram, at: Ints, counter: Ints, pause_ns: Ints) -> _Pause:
        """How long the rank pauses before what ends in these places; where it is a loop, before one of its rounds.

        Args:
            ngram: It comes once in a period, or in an iteration.
            at: Where it ends, (n,).
            counter: Of all operations.
            pause_ns: The time before each of them.
        """
        counter, pause_ns = counter[at], pause_ns[at]
        if len(at) < LEARNT_IN:
            return _Pause(None, at, 0.0)
        if self.loops == 1:
            return _Pause(Beginning(ngram), at, float(np.median(pause_ns)))
        every = self.loops * int(np.median(np.diff(counter)))
        if every < 2:
            return _Pause(None, at, 0.0)
        phases, of = np.unique(counter % every, return_inverse=True)
        long_ns = [float(np.median(pause_ns[of.reshape(-1) == phase])) for phase in range(len(phases))]
        first = int(np.argmax(long_ns))
        return _Pause(Beginning(ngram, every, int(phases[first]), self.loops), at, long_ns[first])

    def _shapes(self, tokens: Tokens) -> Shapes:
        """The shape of each token, -1 of one that the period does not have."""
        known = np.array(sorted(self.shape_of), np.uint32)
        at = np.minimum(np.searchsorted(known, tokens), len(known) - 1)
        shapes = np.array([self.shape_of[int(token)] for token in known], np.int64)
        return np.where(known[at] == tokens, shapes[at], -1)

    def _are_iterations(self, at_ns: Ints, in_period: int) -> bool:
        """Whether iterations begin at these moments, so many in a period, by the times in between."""
        is_alone = in_period >= (1.0 - LITTLE) * self.length
        if is_alone and np.median(np.diff(at_ns)) < LEAST_ALONE_S * 1e9:
            return False
        return _are_even(at_ns, in_period, EVEN_IF_CLOSED if self.closes else EVEN_IF_ALONE if is_alone else EVEN)

    def _alike(self, shapes: Shapes, counter: Ints, issue_ns: Ints) -> Beginning | None:
        """Where a period is one operation."""
        usual = shapes >= 0
        if usual.mean() < ALIKE:
            return None
        pause_ns = np.diff(issue_ns[usual])
        every = _every(pause_ns)
        latest_ns = pause_ns[-every:]
        phase = int(counter[usual][-every:][latest_ns.argmax()]) % every
        return Beginning((int(shapes[usual][0]),), every, phase, every)


def _ends(shapes: Shapes, ngram: Ngram) -> Ints:
    """Where an n-gram ends among operations, ascending."""
    n = len(shapes) - len(ngram) + 1
    ends = np.ones(max(n, 0), np.bool_)
    for first, shape in enumerate(ngram):
        ends &= shapes[first : first + n] == shape
    return np.flatnonzero(ends) + len(ngram) - 1


def _explain(shapes: Shapes, at: Ints) -> bool:
    """Whether most operations are in parts from one of these places to the next that are all alike, and as expected."""
    parts = Counter(shapes[begin:end].tobytes() for begin, end in pairwise(at.tolist()))
    usual, count = parts.most_common(1)[0]
    is_known = bool((np.frombuffer(usual, shapes.dtype) >= 0).all())
    return is_known and count * len(usual) >= USUAL * sum(len(part) * times for part, times in parts.items())


def _are_even(at_ns: Ints, in_period: int, most: float) -> bool:
    """Whether about the same time passes from each of these moments to the next.

    Each length is the median over periods, as on a busy machine single ones differ by more than layers do.

    Args:
        at_ns: The moments, (n,).
        in_period: How many are in a period.
        most: As EVEN.
    """
    if not 0 < in_period < len(at_ns):
        return False
    lasted_ns = np.diff(at_ns)[-((len(at_ns) - 1) // in_period) * in_period :].reshape(-1, in_period)
    short, long = np.quantile(np.median(lasted_ns, axis=0), (0.25, 0.75))
    return bool(long <= most * short)


def _every(pause_ns: Ints) -> int:
    """How many operations are in an iteration, if all are alike: the distance of pauses that are much longer than most.

    Where there are none, as many as come in a while: half a second of such a job is like the next.

    Args:
        pause_ns: The time before each of them, (n,), n > 0.
    """
    least_ns = max(LONG_PAUSE * float(np.median(pause_ns)), float(np.quantile(pause_ns, LONGEST)) / 2)
    long = np.flatnonzero(pause_ns > least_ns)
    apart = np.diff(long)
    if len(long) >= LEAST_PAUSES:
        usual = int(np.median(apart))
        if usual <= MOST_ALIKE and (apart == usual).mean() >= REGULAR:
            return usual
    return max(1, round(ALIKE_S * 1e9 / float(pause_ns.mean())))
