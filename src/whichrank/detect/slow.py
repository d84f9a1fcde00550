"""Which ranks take longer than they should, and whether it is more than noise.

What is looked at is a rank's excess of own time (`locate.selftime`), first against ranks in the same position, which
works from the first iterations on, then, where it has no such peers, against its own past. It is a suspect if it has
been too long for a quarter of a window and still is, or if it is much too long again and again (it comes and goes), for
which two windows are looked at. The latest window says that it still is; all iterations since it began say that it is
no chance, since a window of long ones holds too few. A single pause, however long, is neither. Whether a suspect's
excess delays anybody is for `locate.critical_path`.

The past of a rank is the least of the medians of earlier windows, so a slowdown does not become usual.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.detect.lately import LostLately
from whichrank.detect.losses import CHANCE, STANDS_OUT, STEADY, Before, Losses, began_at
from whichrank.model.incident import FaultClass
from whichrank.model.iterations import Excess, Floats, Window
from whichrank.model.picture import Bools
from whichrank.model.spread import SIGMA_PER_MAD
from whichrank.model.work import Work

EXCESS: Final = 0.05
"""Share of an iteration from which an excess may matter."""
EXCESS_S: Final = 0.002
"""And seconds: less is the work of timers and caches."""
MUCH: Final = 0.15
"""Share of an iteration that an excess must have to count as one bout of a slowdown that comes and goes."""
OFTEN: Final = 0.15
"""Share of the iterations that such bouts must make up."""
BOUTS: Final = 3
"""Times that it must have come."""
PART: Final = 0.25
"""Share of a window for which it must have lasted."""
LEAST: Final = 5
"""Iterations that are looked at, however long they take."""
LEAST_SINCE: Final = 4
"""Of them those in which it must have begun: fewer may be pauses."""
SURE: Final = 5.0
"""Standard errors by which the median of a steady excess must be above zero: many ranks are looked at, all day long.
Where its spread is large, it must be far from what any other rank has, but for few that are like it."""
FEW: Final = 8.0
"""Of few iterations more are asked for: SURE * (1 + FEW / n) is about Student's quantile of one in a million."""
COMPUTE: Final = 0.6
"""Share of own time in what is lost, above which it is S1: the rank computes slowly."""
COMMUNICATION: Final = 0.4
"""Shares of waiting in what collectives lose, above which computation is slow and below which communication is."""
CHANCE_IF_HELD: Final = 1e-3
"""The same of a rank that its node says is held back: two witnesses, of which neither needs to be so sure."""
SURE_IF_HELD: Final = 3.0
"""Instead of SURE, of such a rank."""
LEAST_SINCE_IF_HELD: Final = 2
"""Instead of LEAST_SINCE: iterations may take seconds then."""
_MEDIAN_OF_MEAN: Final = 1.2533
"""Of normal noise: its deviation in median deviations, and the error of a median in that of a mean."""
GREW: Final = 1.1
"""Times its past from which the own time of a rank without peers, or of every rank, is longer than it was."""


@dataclass(frozen=True)
class Suspect:
    """A rank that may be slow.

    Attributes:
        index: Of the rank in the window.
        excess_s: Own time beyond the usual: the median, or the mean where it comes and goes.
        usual_s: What would be usual.
        against: `peers`, `past` or `ring`.
        share: Part of the iterations since then in which it is too long.
        onset: Column of the window in which it began.
        comes_and_goes: It is as usual in most iterations.
        before: Columns before the onset in which it was too long as well: the onset is one of the latest window. With
            those in which it was a little too long by chance.
    """

    index: int
    excess_s: float
    usual_s: float
    against: str
    share: float
    onset: int
    comes_and_goes: bool = False
    before: int = 0

    @property
    def factor(self) -> float:
        """Times the usual."""
        return (self.usual_s + self.excess_s) / self.usual_s if self.usual_s > 0 else float("inf")


def beyond_peers(
    window: Window, excess: Excess, window_s: float, lately: LostLately, *, are_held: bool = False
) -> list[Suspect]:
    """Ranks whose own time is longer than that of their position, the longest first.

    Args:
        window: Iterations of two windows.
        excess: Of each rank.
        window_s: Seconds of one window.
        lately: What ranks lost before it.
        are_held: Only such are asked for as their node says are held back: so few iterations are enough.
    """
    over_s = excess.excess_s - excess.by_work_s
    # A pause counts as no longer than an iteration.
    capped_s, is_bout = np.clip(over_s, 0.0, window.iteration_s), over_s >= _least_bout_s(window)
    lately.take(window, capped_s)
    late = window.since(window_s, LEAST)
    enough = np.maximum(capped_s[:, late:].mean(axis=1), capped_s.mean(axis=1)) >= PART * _least_s(window)
    closer = enough & (_may_be_steady(window, over_s, late, window_s) | (is_bout.mean(axis=1) >= OFTEN))
    likely = np.flatnonzero(excess.has_peers & closer).tolist()
    if not likely:
        return []
    before = Before(window, lately)
    losses = Losses(capped_s, is_bout, CHANCE_IF_HELD if are_held else CHANCE, before)
    asked = _Asked(SURE_IF_HELD, LEAST_SINCE_IF_HELD, 1.0) if are_held else _Asked()
    found = [
        _suspect(window, index, over_s[index], excess.usual_s[index], "peers", window_s, losses, asked)
        for index in likely
    ]
    return sorted((s for s in found if s), key=lambda suspect: -suspect.excess_s)


def _may_be_steady(window: Window, over_s: Floats, late: int, window_s: float) -> Bools:
    """Which ranks are too long often enough for what is steady, wherever it began; the others are not examined."""
    lasted_s = np.cumsum(window.total_s[:, late:].max(axis=0)[::-1])
    fewest = int(np.searchsorted(lasted_s, PART * window_s)) + 1
    late_s, least_s = over_s[:, late:], _least_s(window)
    is_often = (late_s >= least_s / 2).sum(axis=1) >= STEADY * fewest
    return np.asarray(is_often & ((late_s >= least_s).sum(axis=1) >= fewest // 2))


@dataclass(frozen=True)
class _Asked:
    """How much evidence is enough.

    Attributes:
        sure: Standard errors of the median above zero.
        iterations: In which it is so.
        of_latest: Share of the latest excess half of which says in which it is so: where few are enough, one that is a
            little long by chance must not count as the first.
    """

    sure: float = SURE
    iterations: int = LEAST_SINCE
    of_latest: float = 0.0


def _is_sure(excess_s: Floats, sure: float) -> bool:
    """Is the median that much above what its own spread makes of so few iterations?"""
    middle_s, count = float(np.median(excess_s)), len(excess_s)
    spread_s = float(np.median(np.abs(excess_s - middle_s))) * SIGMA_PER_MAD * _MEDIAN_OF_MEAN
    return middle_s * math.sqrt(count) >= sure * (1 + FEW / count) * spread_s


def _least_bout_s(window: Window) -> float:
    return max(MUCH * window.iteration_s, EXCESS_S)


def _least_s(window: Window) -> float:
    return max(EXCESS * window.iteration_s, EXCESS_S)


def _as_long_before(over_s: Floats, onset: int, least_s: float) -> int:
    """How many iterations before the onset belong to the same slowdown; none if it was not steady over all of them."""
    began = min(onset, began_at(over_s - least_s / 2))
    since_s = over_s[began:]
    is_steady = float((since_s >= least_s / 2).mean()) >= STEADY and float(np.median(since_s)) >= least_s
    return onset - began if is_steady else 0


def _suspect(
    window: Window,
    index: int,
    over_s: Floats,
    usual_s: Floats,
    against: str,
    window_s: float,
    losses: Losses | None = None,
    asked: _Asked = _Asked(),
) -> Suspect | None:
    """The rank with this excess in each iteration, if that is more than noise.

    Args:
        window: Iterations.
        index: Of the rank.
        over_s: Its excess, (n,).
        usual_s: What would be usual, (n,).
        against: `peers`, `past` or `ring`.
        window_s: Seconds of one window.
        losses: Of all ranks, to compare with.
        asked: How much evidence is enough.
    """
    least_s = _least_s(window)
    late = window.since(window_s, LEAST)
    onset = late + began_at(over_s[late:] - max(least_s, asked.of_latest * float(over_s[-1])) / 2)
    since_s = over_s[onset:]
    lasts = len(since_s) >= asked.iterations and float(window.total_s[index, onset:].sum()) >= PART * window_s
    share = float((since_s >= least_s / 2).mean()) if len(since_s) else 0.0
    steady = lasts and share >= STEADY and float(np.median(since_s)) >= least_s
    if steady:
        middle_s, before = float(np.median(since_s)), _as_long_before(over_s, onset, least_s)
        is_sure = _is_sure(since_s, asked.sure) or _is_sure(over_s[onset - before :], asked.sure)
        if is_sure or (losses is not None and losses.is_far(index, onset, middle_s)):
            usual = float(np.median(usual_s[onset:]))
            if losses is None or not losses.moves(index, onset, middle_s):
                # What is far above noise begins where it is half of itself: noise before that is no part of it.
                noise = int(np.argmax(since_s >= middle_s / 2))
                return Suspect(index, middle_s, usual, against, share, onset + noise, before=before + noise)
    bouts = over_s >= _least_bout_s(window)
    comes = int((bouts[1:] & ~bouts[:-1]).sum()) + int(bouts[0])
    mean_s = float(np.clip(over_s, 0.0, window.iteration_s).mean())
    if comes < BOUTS or bouts.mean() < OFTEN or mean_s < least_s or window.lasted_s < window_s / 2:
        return None
    if losses is not None and not losses.stands_out(index, 0):
        return None
    return Suspect(index, mean_s, float(np.median(usual_s)), against, float(bouts.mean()), int(np.argmax(bouts)), True)


class Past:
    """The best that each rank has been, window by window.

    Attributes:
        own_s: Least median of own time by rank, infinite where none is known.
        iteration_s: The least iteration, infinite at first.
        without_cpu_s: Of that, ranks were ready and had no CPU.
        transfer_s: The least that collectives took in an iteration once all had entered, infinite at first.
    """

    def __init__(self) -> None:
        self.own_s = np.zeros(0)
        self._given = Work(np.zeros(0), np.zeros(0))  # at that time; 0 where it is not known
        self.iteration_s = np.inf
        self.without_cpu_s = 0.0
        self.transfer_s = np.inf

    def learn(self, window: Window, without_cpu: float, transfer_s: float) -> None:
        """Take a window that is over.

        Args:
            window: Iterations.
            without_cpu: Seconds per second for which ranks were ready and had no CPU.
            transfer_s: Seconds per iteration that collectives took once all had entered.
        """
        self.transfer_s = min(self.transfer_s, transfer_s)
        size = int(window.ranks.max()) + 1
        if size > len(self.own_s):
            more = np.zeros(size - len(self.own_s))
            self.own_s = np.append(self.own_s, more + np.inf)
            self._given = Work(np.append(self._given.elements, more), np.append(self._given.lengths, more))
        own_s = np.median(window.own_s, axis=1)
        less = own_s < self.own_s[window.ranks]
        self.own_s[window.ranks[less]] = own_s[less]
        given = _given_usually(window)[less]
        self._given.elements[window.ranks[less]] = given.elements
        self._given.lengths[window.ranks[less]] = given.lengths
        if window.iteration_s < self.iteration_s:
            self.iteration_s, self.without_cpu_s = window.iteration_s, without_cpu * window.iteration_s

    def grown(self, window: Window) -> Floats:
        """Times its past that each rank's own time is, beyond what it may take for what it is given; 1 without a past.

        Args:
            window: Iterations of R ranks.

        Returns:
            (R,).
        """
        known = np.full(len(window.ranks), np.inf)
        inside = window.ranks < len(self.own_s)
        known[inside] = self.own_s[window.ranks[inside]]
        good = np.isfinite(known) & (known > 0)
        own_s = np.median(window.own_s / self.longer(window), axis=1)
        grown: Floats = np.divide(own_s, known, out=np.ones(len(own_s)), where=good)
        return grown

    def longer(self, window: Window) -> Floats:
        """Times its past that each rank may take for what it is given in each iteration, (R, n); 1 where not known."""
        longer = np.ones(window.own_s.shape)
        inside = window.ranks < len(self.own_s)
        if window.given is not None:
            then = self._given[window.ranks[inside]]
            longer[inside] = window.given[inside].longer_than(then[:, None])
        return longer


def _given_usually(window: Window) -> Work:
    """What each rank is given in most iterations, (R,)."""
    if window.given is None:
        return Work(np.zeros(len(window.ranks)), np.zeros(len(window.ranks)))
    return window.given.median()


def class_of(waiting_s: float, transfer_s: float, past: Past) -> tuple[float, FaultClass] | None:
    """P and the class of a slowdown (CCL-D, equation 4, with the least of all transfers as the baseline).

    Args:
        waiting_s: Seconds per iteration, over all collectives: longest duration less shortest.
        transfer_s: The same: shortest duration.
        past: What the shortest was.

    Returns:
        None where nothing is lost.
    """
    more_s = transfer_s - past.transfer_s  # none where there is no past
    if not more_s >= max(EXCESS * past.iteration_s, EXCESS_S):
        more_s = 0.0
    if waiting_s + more_s <= 0:
        return None
    share = waiting_s / (waiting_s + more_s)
    return share, "S1" if share > COMPUTE else "S2" if share < COMMUNICATION else "S3"


def beyond_past(
    window: Window, excess: Excess, past: Past, window_s: float, suspects: Sequence[Suspect]
) -> list[Suspect]:
    """Ranks without sound peers that are slower than they were, while the others are not.

    Args:
        window: Iterations of two windows.
        excess: Of each rank.
        past: What ranks were.
        window_s: Seconds of one window.
        suspects: Beyond their peers; some may be returned with what they were as usual, if no peer of theirs is sound.
    """
    recent = window.last(window_s, LEAST)
    grown = past.grown(recent)
    usual_s = np.median(recent.own_s, axis=1) / grown

    def slower(those: Bools) -> list[Suspect]:
        likely = np.flatnonzero(those & (grown >= GREW)).tolist()
        if not likely:
            return []
        over_s = window.own_s - usual_s[:, None]
        losses = Losses(np.clip(over_s, 0.0, window.iteration_s), over_s >= _least_bout_s(window))
        found = []
        for index in likely:
            others = np.delete(grown, index)
            if len(others) and float(np.median(others)) - 1.0 < (grown[index] - 1.0) / 2:
                usual = np.full(len(window.iteration), usual_s[index])
                found.append(_suspect(window, index, over_s[index], usual, "past", window_s, losses))
        return [suspect for suspect in found if suspect]

    is_sound = np.ones(len(window.ranks), np.bool_)
    is_sound[[suspect.index for suspect in suspects]] = False
    is_last = is_sound & (np.bincount(window.position, is_sound)[window.position] == 1)
    found = slower(~excess.has_peers | (is_last & np.isin(window.position, window.position[~is_sound])))
    beyond_peers_too = ~is_sound
    is_sound[[suspect.index for suspect in found]] = False
    found += slower(beyond_peers_too & ~np.isin(window.position, window.position[is_sound]))
    return sorted(found, key=lambda suspect: -suspect.excess_s)


def beyond_ring(window: Window, excess: Excess, window_s: float) -> list[Suspect]:
    """Of ranks that send and receive alike all round a ring the one that is slower than all others.

    They do the same, but each for another part of the sequence, and a causal mask makes that uneven: so only one that
    stands out is no design.

    Args:
        window: Iterations of two windows.
        excess: Of each rank; those that have peers are compared with these.
        window_s: Seconds of one window.
    """
    late = window.since(window_s, LEAST)
    rings = np.where(excess.has_peers, -1, window.ring)
    found = []
    for ring in np.unique(rings[rings >= 0]).tolist():
        mine = np.flatnonzero(rings == ring)
        usual_s = np.quantile(window.own_s[mine], 0.5, axis=0, method="lower")
        over_s = window.own_s[mine] - usual_s
        losses = Losses(np.clip(over_s, 0.0, window.iteration_s), over_s >= _least_bout_s(window))
        for place in np.unique([np.argmax(np.median(over_s[:, since:], axis=1)) for since in (late, -LEAST)]).tolist():
            suspect = _suspect(window, int(mine[place]), over_s[place], usual_s, "ring", window_s)
            if suspect is None:
                continue
            lasts = not suspect.comes_and_goes and _stands_out(over_s[:, late:], place, window)
            if lasts or losses.stands_out(place, suspect.onset):
                found.append(suspect)
    return found


def _stands_out(over_s: Floats, place: int, window: Window) -> bool:
    """Is the median of one so far above those of all others, whichever way they differ by design?"""
    middle_s = np.median(over_s, axis=1)
    others_s = float(np.abs(np.delete(middle_s, place)).max(initial=np.inf if len(middle_s) < 2 else 0.0))
    return bool(middle_s[place] >= max(STANDS_OUT * others_s, _least_s(window)))
