"""The iteration, found in the sequence of operations that a rank issues, and every departure from it.

A training loop issues the same operations again and again. Let `x` be a rank's sequence of tokens (one per operation:
communicator and signature). After three equal repetitions the period `p` is known and `x[i] == x[i - p]` is expected.
Where that fails, an edit is looked for: with `d` operations left out the sequence goes on `d` tokens further in the
iteration, with `d` extra ones it goes on behind them, in both cases for a whole period. Such an edit is what a
skipped or repeated operation looks like, even if all its shapes are equal and nothing hangs. If no edit of up to
three tokens explains the rest, the program has changed its pattern (evaluation, a new phase): the period is learnt
again and nothing is claimed.

An inner loop repeats too (microbatches within an iteration), and what closes the iteration then looks like an extra
edit at equal distances; three of them make that distance the period, unless the period has a closing operation
already. Other edits may come in between: in 1F1B the way into the loop is one, and the way out of it another. Also, a
period that breaks soon is followed only by one that is longer than the whole run that it explained; one that held for
hundreds of repetitions was the iteration, and what follows is another phase.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from whichrank.model.picture import Bools
from whichrank.model.sequence import Edit, Tokens

REPEATS = 3
"""Times that a period must have been seen, to be one."""
LEAST_HELD = 8
"""Tokens that a period has explained before a departure from it is one: three equal ones in a row are chance."""
MAX_EDIT = 3
"""Tokens of one edit: more are another phase of the program."""
_SHIFTS = (-1, 1, -2, 2, -3, 3)
MOST_AT_ONCE = 3
"""Edits that are tried together."""
MAX_PERIOD = 4096
"""Tokens. A longer iteration is not found by its tokens, but by optimizer steps."""
TAIL = 8
"""Latest tokens that are compared for all candidates at once."""
PHASE_REPEATS = 128
"""A period that held this often was the iteration, not a loop inside it: models have fewer layers."""
MOST_KEPT = 16384
"""Tokens of a rank: enough for three of the longest periods, and some."""
FIRST_ROOM = 512
"""Tokens that fit at first: a large job has many ranks, and most sequences are short when it begins."""
MOST_EDITS = 256
"""Kept of each rank."""
WIDENED_BY = 32
"""Latest departures by which a loop is told from an iteration: a schedule has several of them in each iteration."""
MOST_AHEAD = 1024
"""Operations behind a gap, from which it is a loss."""
MOST_STALLED = 8
"""Feeds after which a gap is a loss: what is in flight is reported in each of them."""
LEARN_STEP = 4
"""Tokens that are taken at once while little is known."""
SETTLED_REPEATS = 2
"""Times that a period has come again since it was known, until nothing else is expected."""
GIVE_UP = 8
"""Lower bounds are dropped when nothing was found in this many times their length."""


def find_period(x: Tokens, at_least: int = 1) -> int:
    """The shortest period >= `at_least` that the end of `x` repeats three times; 0 if there is none.

    Args:
        x: A rank's latest tokens, oldest first.
        at_least: Shorter periods are not considered.
    """
    likely = _likely_periods(x)
    return _shortest(x, likely[likely >= at_least])


def _likely_periods(x: Tokens) -> NDArray[np.int64]:
    """Those with which the last few tokens agree: of all others none is left."""
    n = len(x)
    if n < REPEATS:
        return np.zeros(0, np.int64)
    longest = min(n // REPEATS, MAX_PERIOD)
    periods: NDArray[np.int64] = longest - (x[n - 1 - longest : n - 1] == x[-1]).nonzero()[0][::-1]
    for back in range(1, min(TAIL, n - longest)):
        if not len(periods):
            break
        periods = periods[((REPEATS - 1) * periods <= back) | (x[n - 1 - back - periods] == x[n - 1 - back])]
    return periods


def _shortest(x: Tokens, periods: NDArray[np.int64]) -> int:
    n = len(x)
    for p in periods.tolist():
        if (x[n - (REPEATS - 1) * p :] == x[n - REPEATS * p : n - p]).all():
            return int(p)
    return 0


class Sequence:
    """One rank's operations in the order of issue, their period and their edits.

    Fed with ordinals and tokens in any order (operations complete out of order); a gap is waited for, a loss starts
    the learning anew.
    """

    def __init__(self, keep: int = MOST_KEPT, closes: Callable[[Tokens], Bools] = lambda x: x < 0) -> None:
        """An empty sequence that keeps `keep` tokens; `closes` says which tokens close an iteration."""
        self._keep = keep
        self._closes = closes
        self._x = np.zeros(min(keep, FIRST_ROOM), np.uint32)
        self._first = 1  # ordinal of _x[0]
        self._n = 0  # contiguous tokens
        self._ahead: dict[int, int] = {}
        self._lossy = False
        self._stalled = 0  # feeds in a row that left a gap
        self._checked = 0  # tokens compared with their period
        self.period = 0
        self._iterations_before = 0  # in tokens that are no longer kept
        self._lost_up_to = 0  # ordinal up to which operations were never reported
        self._at_least = 1
        self._try_at = 0  # tokens at which the next attempt to find a period is worth it
        self._since = 0  # index at which the present period was learnt
        self.edits: list[Edit] = []
        self.edit_index: list[int] = []
        self._departed: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []  # index, missing, extra

    @property
    def last_ordinal(self) -> int:
        """Ordinal of the last operation without a gap before it."""
        return self._first + self._n - 1

    @property
    def is_cut(self) -> bool:
        """Operations before those that are kept were lost."""
        return self._lost_up_to > 0

    @property
    def explained_up_to(self) -> int:
        """Ordinal of the last operation that the present period has explained."""
        return self._first + self._checked - 1

    @property
    def explained(self) -> int:
        """Operations that the present period has explained; 0 while it is not known."""
        return self._checked - self._since if self.period else 0

    @property
    def tokens(self) -> Tokens:
        """The tokens kept, oldest first."""
        return self._x[: self._n]

    def feed(self, ordinals: NDArray[np.int64], tokens: Tokens) -> None:
        """Take operations. Known ordinals are ignored."""
        if not len(ordinals):
            return
        order = np.argsort(ordinals, kind="stable")
        ordinals, tokens = ordinals[order], tokens[order]
        new = ordinals > self.last_ordinal
        ordinals, tokens = ordinals[new], tokens[new]
        if not len(ordinals):
            return
        if (
            not self._ahead
            and ordinals[0] == self.last_ordinal + 1
            and np.array_equal(ordinals, np.arange(ordinals[0], ordinals[0] + len(ordinals)))
        ):
            self._take(tokens)
        else:
            self._ahead.update(zip(ordinals.tolist(), tokens.tolist(), strict=True))
            before = self.last_ordinal
            self._close_gap()
            self._stalled = self._stalled + 1 if self._ahead and self.last_ordinal == before else 0
            if self._ahead and (self._lossy or self._stalled > MOST_STALLED or len(self._ahead) > MOST_AHEAD):
                self.lose(min(self._ahead) - 1)
                self._close_gap()
                self._stalled = 0
        self._lossy = False
        self._check()

    def _close_gap(self) -> None:
        run: list[int] = []
        while (token := self._ahead.pop(self.last_ordinal + 1 + len(run), None)) is not None:
            run.append(token)
        self._take(np.array(run, np.uint32))

    def _take(self, tokens: Tokens) -> None:
        """A few at a time at first, as many as were explained later: a batch may end in a loop inside the iteration."""
        while len(tokens):
            n = max(LEARN_STEP, self.explained if self.period else (self._n - self._since) // 16)
            self._append(tokens[:n])
            self._check()
            tokens = tokens[n:]

    @property
    def is_settled(self) -> bool:
        """Whether its period has explained all that came for a while, and nothing is missing."""
        is_sure = self.period > 0 and self.explained >= SETTLED_REPEATS * self.period
        return is_sure and self._checked == self._n and self._n >= self.period and not (self._ahead or self._lossy)

    def go_on(self, count: int) -> None:
        """Take so many operations that are as its period says; it is settled."""
        while count:
            tokens = np.resize(self.template, min(count, self._keep // 4))
            self._append(tokens)
            self._checked = self._n
            count -= len(tokens)

    def expect_loss(self) -> None:
        """Operations of this rank were lost: the gap that the next ones leave will never be filled."""
        self._lossy = True

    def lose(self, up_to_ordinal: int) -> None:
        """Operations up to this ordinal will never be reported: start again behind them."""
        if up_to_ordinal <= self.last_ordinal:
            return
        self._first, self._n, self._checked, self.period, self._since = up_to_ordinal + 1, 0, 0, 0, 0
        self._iterations_before, self._lost_up_to = 0, up_to_ordinal
        self._try_at = 0
        self._at_least = 1
        self._ahead = {o: t for o, t in self._ahead.items() if o > up_to_ordinal}
        self._forget_edits()

    def _append(self, tokens: Tokens) -> None:
        if len(tokens) > self._keep:
            self.lose(self.last_ordinal + len(tokens) - self._keep)
            tokens = tokens[-self._keep :]
        if self._n + len(tokens) > self._keep:
            drop = max(self._keep // 2, self._n + len(tokens) - self._keep)
            self._iterations_before += drop // self.period if self.period else 0
            self._x[: self._n - drop] = self._x[drop : self._n].copy()
            self._first += drop
            self._n -= drop
            self._checked = max(0, self._checked - drop)
            self._since -= drop
            self._try_at -= drop
            self.edit_index = [i - drop for i in self.edit_index]
            self._departed = [(i - drop, missing, extra) for i, missing, extra in self._departed if i >= drop]
        if self._n + len(tokens) > len(self._x):
            room = np.zeros(min(self._keep, max(2 * len(self._x), self._n + len(tokens))), np.uint32)
            room[: self._n] = self._x[: self._n]
            self._x = room
        self._x[self._n : self._n + len(tokens)] = tokens
        self._n += len(tokens)

    def _check(self) -> None:
        while self._checked < self._n:
            if not self.period:
                self._find()
                return
            i, p = self._checked, self.period
            if i < p:  # the kept part no longer reaches back one period
                self._relearn()
                return
            differ = np.flatnonzero(self._x[i : self._n] != self._x[i - p : self._n - p])
            if not len(differ):
                self._checked = self._n
                return
            at = i + int(differ[0])
            self._checked = at
            if not self._take_edit(at):
                return

    def _find(self) -> None:
        """Look for the period, not at every token: each attempt is worth as much as the sequence has grown."""
        if self._n >= self._try_at:
            if self._n - self._since > GIVE_UP * self._at_least:
                self._at_least = 1
            self.period = self._found()
            self._try_at = self._n + max(1, (self._n - self._since) // 16)
        self._checked = self._n
        if self.period:
            self._since = self._n

    def _found(self) -> int:
        """The shortest period that is long enough, else one that is no loop inside an iteration.

        It is none if it has an operation that closes an iteration, or has come often enough.
        """
        x = self.tokens
        likely = _likely_periods(x)
        long_enough = likely >= self._at_least
        if p := _shortest(x, likely[long_enough]):
            return p
        p = _shortest(x, likely[~long_enough])
        often = x[len(x) - PHASE_REPEATS * p :] if len(x) >= PHASE_REPEATS * p else x[:0]
        has_held = p > 0 and len(often) > 0 and np.array_equal(often[p:], often[:-p])
        return p if has_held or self._closes(x[len(x) - p :]).any() else 0

    def _take_edit(self, at: int) -> bool:
        """Explain the mismatch at `at` by edits. False: wait for more operations, or learn anew.

        Edits may follow each other closely (a log line, then a skipped operation), so up to three small ones are tried
        together, the fewest first; what follows the last one must be as usual for a whole iteration.
        """
        if at - self._since + REPEATS * self.period < LEAST_HELD:
            self._relearn()
            return False
        usual = self._x[at - self.period : at].copy()
        for edits in range(1, MOST_AT_ONCE + 1):
            most = MAX_EDIT if edits == 1 else self.period // 4
            found, undecided = self._explain(usual, at, 0, edits, most)
            if found:
                break
            if undecided:
                return False  # not a whole iteration seen since: it may still turn out otherwise
        if not found:
            self._relearn()
            return False
        for index, shift, q in found:
            # In a short iteration one too few of this may be one too many of that: then it is said to be both.
            either = len(found) == 1 and self._fits(usual, index, q, -shift)
            few, many = (abs(shift), abs(shift)) if either else (max(-shift, 0), max(shift, 0))
            missing = tuple(int(usual[(q + k) % self.period]) for k in range(few))
            extra = tuple(self._x[index : index + many].tolist())
            self._departed.append((index, missing, extra))
            if shift % self.period == 0:
                continue  # whole iterations too many cannot be seen: these were other operations in the same places
            self.edits.append(Edit(self._first + index, missing, extra, self.period))
            self.edit_index.append(index)
        del self.edits[:-MOST_EDITS], self.edit_index[:-MOST_EDITS], self._departed[:-WIDENED_BY]
        self._checked = found[-1][0] + max(found[-1][1], 0) + self.period
        self._widen()
        return True

    def _explain(self, usual: Tokens, i: int, q: int, edits: int, most: int) -> tuple[list[tuple[int, int, int]], bool]:
        """Edits of `most` tokens in all that explain the mismatch at `i`, where place `q` of the period was expected.

        Returns:
            Index, shift (operations too many, or too few if negative) and place of each edit, empty if `edits` of
            them do not explain it; and whether more operations may.
        """
        p, undecided = self.period, False
        for shift in _SHIFTS:
            if -shift >= p or abs(shift) > most:
                continue
            begin, place = i + max(shift, 0), (q + max(-shift, 0)) % p
            run = self._run(usual, begin, place)
            if run >= p:
                return [(i, shift, q)], False
            if begin + run >= self._n:
                undecided = True
            elif edits > 1:
                rest, may = self._explain(usual, begin + run, (place + run) % p, edits - 1, most - abs(shift))
                undecided |= may
                if rest:
                    return [(i, shift, q), *rest], False
        return [], undecided

    def _fits(self, usual: Tokens, i: int, q: int, shift: int) -> bool:
        """Does an edit of this shift explain the mismatch at `i`, as far as is known?"""
        begin, place = i + max(shift, 0), (q + max(-shift, 0)) % self.period
        return -shift < self.period and self._run(usual, begin, place) >= min(self.period, self._n - begin)

    def _run(self, usual: Tokens, i: int, q: int) -> int:
        """How many operations from `i` on are as usual from place `q` on, up to one period."""
        p = len(usual)
        seen = self._x[min(i, self._n) : min(i + p, self._n)]
        differ = np.flatnonzero(seen != np.concatenate((usual[q:], usual[:q]))[: len(seen)])
        return int(differ[0]) if len(differ) else len(seen)

    @property
    def template(self) -> Tokens:
        """The tokens of the latest whole period that was compared; empty while the period is not known."""
        return self._x[self._checked - self.period : self._checked] if self.period else self._x[:0]

    @property
    def is_whole(self) -> bool:
        """The period is an iteration and no loop inside it: it has an operation that closes one."""
        return bool(self._closes(self.template).any())

    def iterations(self) -> int | None:
        """Iterations so far, None if that cannot be reported."""
        if not self.period or not self.is_whole:
            return None
        values, counts = np.unique(self.template, return_counts=True)
        once = values[counts == 1]
        marks = once[self._closes(once)].tolist() or once.tolist()
        if not marks:
            return self.last_ordinal // self.period
        return self.count_before(marks[-1], self.last_ordinal + 1)

    def count_before(self, token: int, ordinal: int) -> int:
        """How often a token, which comes once in the period, came before an operation; about, where some were lost."""
        kept = self.tokens[: max(0, ordinal - self._first)]
        lost = self._lost_up_to // self.period if self.period else 0
        return lost + self._iterations_before + int((kept == token).sum())

    def _widen(self) -> None:
        """Three equal departures at equal distances: the period is that distance.

        Others may come in between, so the latest is held against those like it: of the period `ab`, ``ababb abaab ababb
        abaab ababb`` has an extra `b` in each iteration, and an extra `a`.
        """
        if len(self._departed) < REPEATS or self.is_whole:
            return
        k, *what = self._departed[-1]
        like = [index for index, *other in self._departed if other == what]
        for back in range(1, (len(like) - 1) // 2 + 1):
            j, i = like[-1 - back], like[-1 - 2 * back]
            wide = k - j
            if j - i == wide > self.period and np.array_equal(self._x[j:k], self._x[i:j]):
                self.period, self._since = wide, k
                self._forget_edits()
                return

    def _forget_edits(self) -> None:
        self.edits.clear()
        self.edit_index.clear()
        self._departed.clear()

    def _relearn(self) -> None:
        explained = self._checked - self._since
        run = REPEATS * self.period + explained
        held = explained > PHASE_REPEATS * self.period or (self.is_whole and explained >= REPEATS * self.period)
        self._at_least = 1 if held else min(run, MAX_PERIOD)
        self.period = 0
        self._since = self._checked
        self._try_at = 0
        self._checked = self._n
