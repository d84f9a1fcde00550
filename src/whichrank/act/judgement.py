"""What a validation says: which ranks are slow by themselves, which links are, or that all are well.

A rank is held against the others that were measured with it, and a link against the other links: none had anything else
to do. What differs by no more than the repeats of one and the same says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whichrank.act.validation import REPEATS, Measured, are_few
from whichrank.model.spread import SIGMA_PER_MAD

Floats = NDArray[np.float64]
Pair: TypeAlias = frozenset[int]
"""Both ends of a link, global ranks."""
SLOWER: Final = 1.2
"""Times the others, from which a rank is slow. Greyhound says 1.1 (section 4.3); devices of one make differ."""
SLOWER_MEMORY: Final = 1.6
"""The same of copies of memory: which node of memory and which pages a process has got makes a quarter and more."""
SLOWER_ONCE: Final = 2.0
"""The same of computation that was not repeated as often as it should be. Copies of memory then say nothing."""
SLOWER_LINK: Final = 1.5
"""The same of a link: on a machine that computes as well a message takes more or less by chance."""
FAR_SLOWER: Final = 2.0
"""Times the quickest link, from which it is not clear that a link is sound which the job found to be slow."""
ABOUT_AS_QUICK: Final = 1.2
"""Times what a link takes that the quicker half take, up to which it is sound."""
CLEARLY: Final = 1.1
"""Times as quick as a link all of the quicker half are at least, for the pace at which its data came in to count."""
SIGMAS: Final = 5.0
"""Robust standard deviations of the others, by which it must be beyond them."""
SPREADS: Final = 1.0
"""Times what the repeats of one usually differ by, by which it must be beyond the others besides."""
LEAST: Final = 3
"""Measured together, for a median to say something."""


@dataclass(frozen=True)
class SlowRank:
    """A rank that takes longer than the others for the same work, with the job at rest.

    Attributes:
        rank: Which.
        what: `compute` or `memory`.
        factor: Times as long as the others usually take.
    """

    rank: int
    what: str
    factor: float


@dataclass(frozen=True)
class SlowLink:
    """A link on which a message takes longer than on others of its sort, within nodes or between them.

    Attributes:
        src: Global rank that sent.
        dst: And that received.
        factor: Times the median.
        bytes_per_s: What it lets through.
        usual_bytes_per_s: The median.
    """

    src: int
    dst: int
    factor: float
    bytes_per_s: float
    usual_bytes_per_s: float


@dataclass(frozen=True)
class Judgement:
    """What a validation says.

    Attributes:
        ranks: Slow ones, the slowest first.
        links: The same.
        sound_links: That the job found slow and that are about as quick at rest as the quicker half of their sort; only
            where it found another one of that sort which is slow.
        unclear_links: That the job found slow and that are far slower than the quickest one at rest; too few others are
            quick to say that these are the slow ones. Held against the quickest.
        compared_links: Of the measured ones those of which enough are alike.
        missed_links: That the job found slow and that were not measured.
        problems: By rank, why it could not be measured.
        measured_ranks: How many were.
        measured_links: The same.
        seen_from: A rank that computes so many times as long would have been named; 0: too little was measured.
    """

    ranks: tuple[SlowRank, ...]
    links: tuple[SlowLink, ...]
    problems: dict[int, str]
    measured_ranks: int
    measured_links: int
    seen_from: float
    sound_links: tuple[SlowLink, ...] = ()
    unclear_links: tuple[SlowLink, ...] = ()
    compared_links: int = 0
    missed_links: int = 0

    @property
    def is_healthy(self) -> bool:
        """Whether enough was measured and nothing is slow."""
        is_enough = self.measured_ranks >= LEAST and self.seen_from > 0
        is_enough &= self.compared_links > 0 or not self.measured_links
        is_clear = not (self.unclear_links or self.missed_links or self.problems)
        return is_enough and is_clear and not (self.ranks or self.links)


def judge(measured: Measured, node_of: Mapping[int, str], named: Set[Pair] = frozenset()) -> Judgement:
    """Say what is slow.

    Args:
        measured: In a validation.
        node_of: Where each rank is.
        named: Links that the incident names which is to be proved, each by its two ends: which way is slow may not be
            known.
    """
    is_repeated = measured.memory_s.shape[1] >= REPEATS
    slower, kinds = SLOWER if is_repeated else SLOWER_ONCE, measured.compute_s.transpose(1, 0, 2)
    compute = _compared(kinds, slower)
    memory = _compared(measured.memory_s[None], SLOWER_MEMORY) if is_repeated else {}
    slow = [SlowRank(int(measured.ranks[at]), "compute", factor) for at, factor in compute.items()]
    slow += [SlowRank(int(measured.ranks[at]), "memory", f) for at, f in memory.items() if at not in compute]
    ends = {one.rank for one in slow if one.what == "compute"}  # it reads and sends slowly: that says nothing of links
    links, sorts = _links_by_sort(measured, ends, node_of)
    found = [one for sort in sorts for one in _slow_of_a_sort(sort, named)]
    known = {frozenset((one.src, one.dst)) for one in found}
    unclear = [one for sort in sorts for one in _unclear(sort, named - known)]
    known |= {frozenset((one.src, one.dst)) for one in unclear}
    slow_named = {(one.src, one.dst) for one in found if frozenset((one.src, one.dst)) in named}
    sound = [
        one
        for sort in sorts
        if not slow_named.isdisjoint(sort)
        for one in _held_against_the_quick(_rates(sort), named - known)
        if one.factor <= ABOUT_AS_QUICK
    ]
    tested = {frozenset(pair) for pair in links}
    limits = [_limit(kind, slower) for kind in _known(kinds)]
    return Judgement(
        ranks=tuple(sorted(slow, key=lambda one: -one.factor)),
        links=tuple(sorted(found, key=lambda one: -one.factor)),
        problems=dict(measured.problems),
        measured_ranks=int(np.isfinite(measured.compute_s).any(axis=(1, 2)).sum()),
        measured_links=len(links),
        seen_from=max(limits, default=0.0),
        sound_links=tuple(sorted(sound, key=lambda one: -one.factor)),
        unclear_links=tuple(sorted(unclear, key=lambda one: -one.factor)),
        compared_links=sum(len(sort) for sort in sorts if len(sort) >= LEAST),
        missed_links=sum(pair not in tested and pair.isdisjoint(ends) for pair in named),
    )


def _compared(times: Floats, slower: float) -> dict[int, float]:
    """Which take longer than the others by more than chance, and how many times as long.

    The best repeat of one is held against the usual repeat of the others, and it must be longer by as much as one's own
    repeats differ: where many share a core they differ by a half. Of several kinds of measurements all must say so that
    were made of it: what is very slow has no time for all. Where it is so of many, they are another sort and not slow.

    Args:
        times: Of each kind, of each that is compared, of each repeat, (k, n, repeats); NaN: not measured.
        slower: Times as long, from which it counts.
    """
    least = np.min([_factors(kind, slower) for kind in _known(times)] or [np.full(times.shape[1], np.inf)], axis=0)
    found = np.flatnonzero((least > 0) & np.isfinite(least))
    return {int(at): float(least[at]) for at in found} if are_few(len(found), times.shape[1]) else {}


def _known(times: Floats) -> list[Floats]:
    """The kinds of which enough were measured."""
    return [kind for kind in times if np.isfinite(kind).all(axis=1).sum() >= LEAST]


def _limit(kind: Floats, slower: float) -> float:
    """Times as long, from which one of these (n, repeats) counts as slow: beyond what repeats and others differ by."""
    known = kind[np.isfinite(kind).all(axis=1)]
    usual = np.median(known, axis=1)
    within = float(np.median(np.ptp(known, axis=1) / usual))
    apart = SIGMA_PER_MAD * float(np.median(np.abs(usual - np.median(usual)))) / float(np.median(usual))
    return max(slower + SPREADS * within, 1.0 + SIGMAS * apart)


def _factors(times: Floats, slower: float) -> Floats:
    """Of one kind, (n, repeats): times as long as the others, 0 if that is no more than chance, (n,); not made: inf."""
    measured = np.isfinite(times).all(axis=1)
    factors = np.full(len(times), np.inf)
    known = times[measured]
    usual = np.median(known, axis=1)
    ratio = known.min(axis=1) / np.array([np.median(np.delete(usual, at)) for at in range(len(known))])
    factors[measured] = np.where(ratio >= _limit(times, slower), ratio, 0.0)
    return factors


def _links_by_sort(
    measured: Measured, without: Set[int], node_of: Mapping[int, str]
) -> tuple[dict[tuple[int, int], _Link], list[dict[tuple[int, int], _Link]]]:
    """Links by sender and receiver, without those of some ranks: all; and those within nodes apart from the others."""
    each: dict[tuple[int, int], _Link] = {}
    for src, dst, size, seconds in measured.links:
        known = [one for one in seconds if math.isfinite(one)]
        if known and without.isdisjoint((src, dst)):
            each.setdefault((src, dst), _Link(measured.arrivals.get((src, dst), math.nan))).add(size, known)
    return each, [
        {pair: at for pair, at in each.items() if (node_of.get(pair[0]) == node_of.get(pair[1])) == is_within}
        for is_within in (True, False)
    ]


@dataclass
class _Link:
    """What went over one.

    Attributes:
        arrival: Bytes per second at which the middle byte came in, NaN not known.
        size: Bytes of the largest messages.
        seconds: What each of these took.
        all_bytes: Of all messages.
        all_s: What they took.
    """

    arrival: float
    size: int = 0
    seconds: list[float] = field(default_factory=list)
    all_bytes: int = 0
    all_s: float = 0.0

    def add(self, size: int, seconds: list[float]) -> None:
        """Messages of one size."""
        self.all_bytes += size * len(seconds)
        self.all_s += sum(seconds)
        if size >= self.size:
            self.size, self.seconds = size, seconds

    @property
    def rate(self) -> float:
        """Bytes per second, of all."""
        return self.all_bytes / self.all_s


def _slow_of_a_sort(each: Mapping[tuple[int, int], _Link], named: Set[Pair]) -> list[SlowLink]:
    """Of links that are alike: by the largest messages, and for named ones by all that went over in the time."""
    if len(each) < LEAST:
        return []
    repeats = max(len(link.seconds) for link in each.values())
    times = np.array([np.resize(link.seconds, repeats) / link.size for link in each.values()])
    usual, pairs = np.median(times, axis=1), list(each)
    found = [
        SlowLink(*pairs[at], factor, 1 / float(usual[at]), 1 / float(np.median(np.delete(usual, at))))
        for at, factor in _compared(times[None], SLOWER_LINK).items()
    ]
    known = {(one.src, one.dst) for one in found}
    return found + [one for one in _named_that_are_slow(each, named) if (one.src, one.dst) not in known]


def _named_that_are_slow(each: Mapping[tuple[int, int], _Link], named: Set[Pair]) -> list[SlowLink]:
    """Links that the job found to be slow, and that are slower at rest than the quicker half of all.

    Where a node's traffic is held back, half of all links may be slow and are no sort of their own. Flows of others
    take turns for tenths of a second, so what counts is all that went over in the time. Or, if the pace at which data
    came in is known of all of them, that pace, of a link that is not in the quicker half: by it a path that is shared
    shows in moments in which it has the most.
    """
    rates, paces = _rates(each), {pair: link.arrival for pair, link in each.items()}
    found = {(one.src, one.dst): one for one in _slower_than_the_quick(rates, named)}
    if all(map(math.isfinite, paces.values())):
        least = _quicker_half(rates)[-1]
        by_pace = {(one.src, one.dst): one for one in _slower_than_the_quick(paces, named)}
        found |= {
            pair: one
            for pair, one in by_pace.items()
            if pair not in found and CLEARLY * rates[pair] <= least and rates[pair] < paces[pair]
        }
    return list(found.values())


def _rates(each: Mapping[tuple[int, int], _Link]) -> dict[tuple[int, int], float]:
    return {pair: link.rate for pair, link in each.items()}


def _slower_than_the_quick(rates: Mapping[tuple[int, int], float], named: Set[Pair]) -> list[SlowLink]:
    """Named links that are slower than all of the quicker half."""
    least = _quicker_half(rates)[-1]
    return [one for one in _held_against_the_quick(rates, named) if SLOWER_LINK * one.bytes_per_s <= least]


def _held_against_the_quick(rates: Mapping[tuple[int, int], float], named: Set[Pair]) -> list[SlowLink]:
    """Named links beside the quicker half of all."""
    usual = float(np.median(_quicker_half(rates)))
    return [SlowLink(*pair, usual / rate, rate, usual) for pair, rate in rates.items() if frozenset(pair) in named]


def _quicker_half(rates: Mapping[tuple[int, int], float]) -> list[float]:
    """The quickest first."""
    return sorted(rates.values(), reverse=True)[: math.ceil(len(rates) / 2)]


def _unclear(each: Mapping[tuple[int, int], _Link], named: Set[Pair]) -> list[SlowLink]:
    """Links that the job found to be slow and that nothing shows to be so, though one is far quicker."""
    most = max((link.rate for link in each.values()), default=0.0)
    likely = {p: link.rate for p, link in each.items() if frozenset(p) in named and FAR_SLOWER * link.rate <= most}
    return [SlowLink(*pair, most / rate, rate, most) for pair, rate in likely.items()]
