"""Which paths between nodes are slow, and where (DESIGN 5.3; C4D's transfer matrix, section III.A).

A rate is known in one of two paths. Where the socket sensor is loaded, it is the pace at which data came in at the
receiver: that of the path itself if the path is what limits. Elsewhere it is what the sender's kernel says: bytes by
    the time in which something was under way, which late acknowledgements and small messages stretch. Rates of both
    kinds are never compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whichrank.model.incident import LinkEnd
from whichrank.model.links import LinkRate, SlowLink, Transfers
from whichrank.model.picture import Bools, Floats, Ints

SLOWER = 0.5
"""Of the usual rate, from which a path is slow."""
SLOWER_BY_LOSS = 0.8
"""The same for a very lossy path."""
SLOWER_BY_OWN_LOSS = 0.9
"""The same for one that loses far more than those like it."""
SAGS = 0.7
"""Of the least that it has been, from which a path is slow on which bytes wait to be sent most of the time."""
MUCH_SLOWER = 0.25
"""Of what kernels see on the ways in the middle, from which one that was never better is slow."""
NOT_READY = 0.15
"""Of the usual pace, from which a path that its sender's kernel finds slower than it was costs what that kernel says:
data that lie ready are copied at paces which differ by less."""
BOUND = 0.75
"""Of what kernels have seen paths carry, below which the pace of arrival shows that one carries less."""
LEAST_BYTES = 1 << 18
"""In a sample, for its rate to mean anything: a few full windows of TCP."""
LEAST_ACTIVE = 0.02
"""Share of the window in which something was under way, for a rate to mean anything."""
MOSTLY = 0.5
"""Share of the bytes whose pace must be known, for it to be that of the path; of the time with something under way."""
LEAST_ALIKE = 3
"""Comparable ways, to know what is usual without a past."""
ALIKE = 4.0
"""Times as many bytes as another, at most, for two ways to be comparable; times as lossy, at least, to stand out."""
MOST_LIKELY = 256
"""Paths that are compared with those like them, the slowest."""
EVEN = 1.25
"""Times the slower of two paces that the faster is, if they are one."""
BETTER = 0.75
"""Share of the paths like one that may be slow with it, and it is no sign that all are."""
CLEARLY = 1.05
"""Times as fast, from which one of two slow paths is the faster one."""
LIMITS = 0.5
"""Share of the busy time from which a limit names an end."""
LOSSY = 0.005
"""Share of the segments that were sent again all the time, from which that is what makes a path slow."""
VERY_LOSSY = 0.02
"""The same, from which that alone shows that something is wrong with the path."""


@dataclass(frozen=True)
class Rates:
    """Bytes per second of each pair of a `Transfers`, NaN where not known.

    Attributes:
        by_arrival: The pace at which data came in at the receiver.
        by_kernel: While something was under way, by the sender's kernel.
        at_least: The same, and where that was for a short time only, what it was at the least.
    """

    by_arrival: Floats
    by_kernel: Floats
    at_least: Floats

    @property
    def best_known(self) -> Floats:
        """The pace of arrival where it is known."""
        return np.where(np.isnan(self.by_arrival), self.by_kernel, self.by_arrival)


class LinkPast:
    """The best rates that each link has had, and the least that its sender's kernel has seen while all was well."""

    def __init__(self) -> None:
        self._best: dict[tuple[int, int], tuple[float, float, float]] = {}
        self._least: dict[tuple[int, int], float] = {}

    def usual(self, transfers: Transfers) -> Rates:
        """What each link has had at best."""
        best = np.array([self._best.get(pair, (np.nan,) * 3) for pair in _pairs(transfers)]).reshape(-1, 3)
        return Rates(best[:, 0], best[:, 1], best[:, 2])

    def least(self, transfers: Transfers) -> Floats:
        """What each link has had at least, by its sender's kernel."""
        return np.array([self._least.get(pair, np.nan) for pair in _pairs(transfers)])

    def learn(self, transfers: Transfers, node: Ints, *, only_new: bool = False) -> None:
        """Take a window that is over: what went between nodes.

        Of a path that is known already it counts only if something went over in both of its halves: a model that is
        gathered goes one path after the other, and has each for itself.

        Args:
            transfers: One window, of a job that iterates.
            node: By rank, its node.
            only_new: Leave out the paths that are known.
        """
        transfers = transfers.of(node[transfers.src] != node[transfers.dst])
        self._learn_least(transfers.of(transfers.steady_bytes >= LEAST_BYTES), only_new=only_new)
        is_new = np.isnan(self.usual(transfers).by_kernel)
        transfers = transfers.of(is_new if only_new else is_new | (transfers.steady_bytes >= LEAST_BYTES))
        if not len(transfers.src):
            return
        now, before = rates_of(transfers), self.usual(transfers)
        best = (
            np.fmax(now.by_arrival, before.by_arrival).tolist(),
            np.fmax(now.by_kernel, before.by_kernel).tolist(),
            np.fmax(now.at_least, before.at_least).tolist(),
        )
        self._best.update(zip(_pairs(transfers), zip(*best, strict=True), strict=True))

    def _learn_least(self, transfers: Transfers, *, only_new: bool) -> None:
        least = self.least(transfers)
        rates = np.fmin(rates_of(transfers).by_kernel, least)
        take = ~np.isnan(rates) & (np.isnan(least) | (not only_new))
        self._least.update(zip(_pairs(transfers.of(take)), rates[take].tolist(), strict=True))


def _pairs(transfers: Transfers) -> Iterator[tuple[int, int]]:
    return zip(transfers.src.tolist(), transfers.dst.tolist(), strict=True)


def rates_of(transfers: Transfers) -> Rates:
    """Where enough went over, and in the time that the kernel says something was under way for long enough."""
    enough = transfers.bytes_acked >= LEAST_BYTES
    active_s = transfers.active_s
    known = enough & (active_s >= LEAST_ACTIVE * transfers.lasted_s) & (active_s > 0)
    by_kernel = np.divide(transfers.bytes_acked, active_s, out=np.full(len(active_s), np.nan), where=known)
    is_paced = enough & (transfers.arrived_bytes >= MOSTLY * transfers.bytes_acked)
    least_s = np.maximum(active_s, LEAST_ACTIVE * transfers.lasted_s)
    at_least = np.divide(
        transfers.bytes_acked, least_s, out=np.full(len(active_s), np.nan), where=enough & (least_s > 0)
    )
    return Rates(np.where(is_paced, transfers.arrival, np.nan), by_kernel, at_least)


def matrix_of(
    transfers: Transfers, node: Ints, past: LinkPast, most: int, reported: Sequence[SlowLink] = ()
) -> tuple[LinkRate, ...]:
    """The rates that are known between nodes, the slowest first.

    Args:
        transfers: One window.
        node: By rank, its node.
        past: The best rates so far.
        most: Cells, at most.
        reported: Links that are told to be slow: each has a cell.
    """
    rates, before = rates_of(transfers), past.usual(transfers)
    rate, is_paced = rates.best_known, ~np.isnan(rates.by_arrival)
    best = np.where(is_paced, before.by_arrival, before.by_kernel)
    best = np.where(np.isnan(best), np.nan, np.fmax(best, rate))
    # A path whose pace was known, and is not while little comes, keeps its cell for that and is given no other rate.
    is_reported = np.isin(transfers.src << 32 | transfers.dst, [link.src << 32 | link.dst for link in reported])
    is_known = ~np.isnan(rate) & (is_paced | np.isnan(before.by_arrival) | is_reported)
    known = np.flatnonzero((node[transfers.src] != node[transfers.dst]) & is_known)
    busy = transfers.bytes_acked / rate / max(transfers.lasted_s, 1e-9)
    return tuple(
        LinkRate(
            src=int(transfers.src[i]), dst=int(transfers.dst[i]), rate=round(float(rate[i])),
            best=None if np.isnan(best[i]) else round(float(best[i])), busy=round(float(busy[i]), 4),
            paced=bool(is_paced[i]),
        )
        for i in known[np.argsort(rate[known], kind="stable")][:most].tolist()
    )  # fmt: skip


def slow_links(transfers: Transfers, node: Ints, past: LinkPast) -> list[SlowLink]:
    """Links between nodes that are slower than comparable ones, or than they were (C4D's matrix, section III.A).

    What a path can carry lies between two rates: data never come in more slowly than it lets them, and faster where the
    receiver came late and found them ready; the sender's kernel never sees more than it carries, and less where
    messages are small or answers late. So where the pace of arrival is known, a path is slow if that pace is below what
    kernels have seen, of this way or in the middle of those like it, and below the usual pace; or below the one pace
    that all paths like it have, and it had itself. It is not if its kernel sees half of the usual pace go over and
    more: a sender may pace what it sends. The kernels must agree that it is the path and not a receiver that seldom
    gets to read: bytes wait on the way rather than at its end, or the sender's kernel delivers as slowly. A receiver
    that has to wait for a CPU finds much of its data ready: where the pace is much slower than usual still, and the
    sender's kernel slower than it was itself, and the others are at their pace, that kernel says what the path costs.
    A path that loses data is seen by what is sent again, one that stalls, or is slow now and then, by its sender's
    kernel.

    Where no pace is known, the sender's kernel is asked alone (beside paths with a pace only whether it was faster),
    and the link's end is where it sees the fault: bytes wait to be sent, an end limits, or its estimate of the rate is
    low. Where it sees none, it is None, and the path back may be slow: acknowledgements come late, and what they answer
    only looks slow. So where the pace shows that what a node sends is slow, or what it is sent, no kernel's word counts
    for the paths that are answered there.

    Args:
        transfers: One window.
        node: By rank, its node; links within a node are no network.
        past: The best rates so far.
    """
    between = node[transfers.src] != node[transfers.dst]
    now, before = rates_of(transfers), past.usual(transfers)
    is_paced = ~np.isnan(now.by_arrival)
    by_arrival = _slower(transfers, between, now.by_arrival, before.by_arrival)
    by_kernel = _slower(transfers, between, now.by_kernel, before.by_kernel)
    has_pace = bool((is_paced & between).any() or not np.isnan(before.by_arrival).all())
    is_lossy = transfers.resent >= LOSSY
    very_lossy = between & (transfers.resent >= VERY_LOSSY)
    by_kernel |= _slower(transfers, between, now.by_kernel, before.by_kernel, very_lossy, SLOWER_BY_LOSS)
    by_own_loss = _lossier_than_others(transfers, between, very_lossy)
    by_kernel |= _slower(transfers, between, now.by_kernel, before.by_kernel, by_own_loss, SLOWER_BY_OWN_LOSS)
    was_faster = now.by_kernel < SLOWER * before.by_kernel
    is_steady = transfers.steady_bytes >= LEAST_BYTES
    found = {}
    for i, link in by_kernel.items():
        if not is_steady[i]:
            continue
        stalls = _stalls(transfers, between, now, before, i)
        if is_lossy[i] or not has_pace or (was_faster[i] and not is_paced[i]) or stalls:
            end = _end(transfers, i, link.usual) or ("path" if is_lossy[i] else None)
            found[i] = replace(link, end=end, stalls=stalls)
    least = past.least(transfers)
    for i, link in _sagging(transfers, between, now, least).items():
        found.setdefault(i, link)
    least_s = LEAST_ACTIVE * transfers.lasted_s
    for i, link in by_arrival.items():
        if link.lost_s < least_s or now.by_kernel[i] >= SLOWER * link.usual:
            continue
        usual = _usual(transfers, between, now.at_least, before.at_least, i)
        if link.rate < BOUND * usual or _had_the_pace_of_all(transfers, between, now, before, i):
            is_delivered_slowly = transfers.delivery[i] < SLOWER * link.usual
            is_path = is_delivered_slowly or transfers.unacked_bytes[i] > transfers.unread_bytes[i]
            found[i] = replace(link, end=_limit(transfers, i) or ("path" if is_path else None), is_paced=True)
    for i, link in by_arrival.items():
        if i in found or i not in by_kernel or not was_faster[i] or not now.by_kernel[i] < SAGS * least[i]:
            continue  # of small messages a kernel's rates differ by half, so it must be below all that it has been
        others = _alike(transfers, between, now.by_arrival, i) or np.inf
        is_late = transfers.delivery[i] < SLOWER * link.usual and link.rate < NOT_READY * link.usual
        if is_late and link.rate < SLOWER * others:
            found[i] = replace(by_kernel[i], end=_limit(transfers, i) or "path")
    shown = [link for link in found.values() if link.is_paced]
    # Some of what is not answered in time is sent again, though nothing was lost.
    late = {int(node[link.src]) for i, link in by_kernel.items() if i in by_arrival and not is_lossy[i]}

    def is_answered_late(i: int, link: SlowLink) -> bool:
        """Do its acknowledgements travel with what is slow, by a pace that shows it?"""
        surely = [other for other in shown if other.end] if is_lossy[i] else shown
        src, dst = int(node[link.src]), int(node[link.dst])
        on_a_slow_path = any(node[other.src] == dst or node[other.dst] == src for other in surely)
        return not very_lossy[i] and (on_a_slow_path or (bool(is_lossy[i]) and dst in late))

    kept = [link for i, link in found.items() if link.is_paced or not is_answered_late(i, link)]
    return sorted(kept, key=lambda link: -link.lost_s)


def _stalls(transfers: Transfers, between: Bools, now: Rates, before: Rates, i: int) -> bool:
    """Is something under way most of the time, far more slowly than it was, or than on other paths?

    What comes after a pause comes at once: the pace of arrival does not see the pauses of a sender that waits for
    its timer. A rate that is slow for this way must be slow beside the better of the others now too; one that was
    never better, since the path was slow from the start, must be far below those in the middle.
    """
    rate = now.by_kernel[i]
    better, middle = (_alike(transfers, between, now.by_kernel, i, share) for share in (BETTER, 0.5))
    was_better = before.by_kernel[i] > rate / SLOWER and (better is None or better > rate / SLOWER)
    is_far_below = middle is not None and middle > rate / MUCH_SLOWER
    return bool(transfers.active_s[i] >= MOSTLY * transfers.lasted_s and (was_better or is_far_below))


def _had_the_pace_of_all(transfers: Transfers, between: Bools, now: Rates, before: Rates, i: int) -> bool:
    """Do the paths like it keep one pace, which was its own, and does its kernel see it sag as well?

    Kernels see less than paths carry where messages are small. Without their word all receivers may have come late but
    one, who found data at the pace of its path.
    """
    usual = _alike(transfers, between, now.by_kernel, i)
    if usual is None or not now.by_kernel[i] < SAGS * min(usual, before.by_kernel[i]):
        return False
    low, high = (_alike(transfers, between, now.by_arrival, i, share) for share in (1 - BETTER, BETTER))
    if low is None or high is None or high > EVEN * low:
        return False
    return bool(low <= EVEN * before.by_arrival[i] and before.by_arrival[i] <= EVEN * high)


def _lossier_than_others(transfers: Transfers, between: Bools, very_lossy: Bools) -> Bools:
    """Of very lossy paths those that lose far more than the ones that carry about as much: no network that is full."""
    likely = np.flatnonzero(very_lossy)
    stands_out = np.zeros(len(very_lossy), np.bool_)
    for i in likely[np.argsort(-transfers.resent[likely], kind="stable")][:MOST_LIKELY].tolist():
        stands_out[i] = transfers.resent[i] >= ALIKE * (_alike(transfers, between, transfers.resent, i) or 0.0)
    return stands_out


def _sagging(transfers: Transfers, between: Bools, now: Rates, least: Floats) -> dict[int, SlowLink]:
    """Paths that are slow for a part of the time, by place: most bytes come at the pace of the rest.

    Something is under way most of the time, bytes wait to be sent, and the rate over all of it is below what it has
    been, in any window, and below that of the better of the others now.
    """
    busy = transfers.active_s >= MOSTLY * transfers.lasted_s
    likely = np.flatnonzero(between & busy & (transfers.steady_bytes >= LEAST_BYTES) & (now.by_kernel < SAGS * least))
    found = {}
    for i in likely[np.argsort(now.by_kernel[likely] / least[likely], kind="stable")][:MOST_LIKELY].tolist():
        better, rate, usual = _alike(transfers, between, now.by_kernel, i, BETTER), now.by_kernel[i], float(least[i])
        if better is not None and rate < SAGS * better and _end(transfers, i, usual) == "path":
            found[i] = replace(_slow_link(transfers, i, float(rate), usual), end="path")
    return found


def _usual(transfers: Transfers, between: Bools, rate: Floats, before: Floats, i: int) -> float:
    """What the rate of a path was at best, or is in the middle of those that carry about as much; 0 unknown."""
    return max(_alike(transfers, between, rate, i) or 0.0, 0.0 if np.isnan(before[i]) else float(before[i]))


def _alike(transfers: Transfers, between: Bools, rate: Floats, i: int, share: float = 0.5) -> float | None:
    """The rate below which this share of the paths that carry about as much lies; None if they are too few."""
    mine = transfers.bytes_acked[i]
    alike = between & ~np.isnan(rate) & (transfers.bytes_acked <= ALIKE * mine)
    alike &= ALIKE * transfers.bytes_acked >= mine
    alike[i] = False
    return float(np.quantile(rate[alike], share)) if alike.sum() >= LEAST_ALIKE else None


def _slower(
    transfers: Transfers, between: Bools, rate: Floats, before: Floats, of: Bools | None = None, share: float = SLOWER
) -> dict[int, SlowLink]:
    """Of the paths between nodes, or of some, those of which this rate is below a share of the usual one, by place."""
    # What is usual is no more than the fastest, so only these can be slow; at large sizes those are enough that are
    # furthest below what they were: small messages are slow on any path.
    fastest = np.fmax(before, np.nanmax(rate[between], initial=0.0))
    likely = np.flatnonzero((between if of is None else of) & (rate < share * fastest))
    part = rate[likely] / np.where(before > 0, before, fastest)[likely]
    found = {}
    for i in likely[np.argsort(part, kind="stable")][:MOST_LIKELY].tolist():
        usual = _usual(transfers, between, rate, before, i)
        if usual and rate[i] < share * usual:
            found[i] = _slow_link(transfers, i, float(rate[i]), usual)
    return found


def _slow_link(transfers: Transfers, i: int, rate: float, usual: float) -> SlowLink:
    """A path at this rate, of which it is not known where the fault is."""
    src, dst, mine = int(transfers.src[i]), int(transfers.dst[i]), float(transfers.bytes_acked[i])
    lost_s, unsent = mine / rate - mine / usual, int(transfers.unsent_bytes[i])
    return SlowLink(src, dst, rate, usual, None, lost_s, unsent, int(mine))


def without_paths_back(slow: list[SlowLink], node: Ints) -> list[SlowLink]:
    """Of slow links those that are slow themselves, by the pace of arrival or where a kernel sees something.

    What a node sends carries its acknowledgements too. Where all that it sends is slow, they come late, and who sends
    to it has to wait for them: bytes pile up in front of a path that is sound. So where no pace is known and both paths
    of a node are slow, what it sends is reported if that is clearly the slower one, else neither: it cannot be known
    which of them makes the other look slow. Where they stall, their connections are reported, with no end: that one
    path of each is slow is certain. What limits at an end is reported in any case.

    Args:
        slow: From `slow_links`.
        node: By rank, its node.
    """
    reported = [link for link in slow if link.end in ("receiver", "sender") or (link.is_paced and link.end)]
    paths = [link for link in slow if link.end not in ("receiver", "sender") and not link.is_paced]
    source, target = [int(node[link.src]) for link in paths], [int(node[link.dst]) for link in paths]
    seen = {i for i, link in enumerate(paths) if link.end == "path"}
    excused: set[int] = set()
    either: set[int] = set()

    def slowest(of: int) -> float:
        return min(link.rate for link, at in zip(paths, source, strict=True) if at == of)

    for both in sorted(set(source) & set(target), key=slowest):
        out = {i for i, at in enumerate(source) if at == both} - excused
        back = {i for i, at in enumerate(target) if at == both} - excused
        if not out or not back:
            continue
        if seen & (out | back):
            seen |= out
        out_rate, back_rate = (float(np.median([paths[i].rate for i in path])) for path in (out, back))
        carried = [float(np.median([paths[i].carried_bytes for i in path])) for path in (out, back)]
        is_clear = out_rate * CLEARLY < back_rate and max(carried) <= ALIKE * min(carried)
        excused |= back if is_clear else out | back
        either |= set() if is_clear else out | back
    either |= set(range(len(paths))) - seen - excused
    reported += [replace(paths[i], end=None) for i in sorted(either) if paths[i].stalls]
    reported += [replace(paths[i], end="path") for i in sorted(seen - excused)]
    return sorted(reported, key=lambda link: -link.lost_s)


def _end(transfers: Transfers, i: int, usual: float) -> LinkEnd | None:
    """Where the fault is by the word of the sender's kernel; None if it knows of none."""
    is_path = transfers.unsent_bytes[i] > 0 or transfers.delivery[i] < SLOWER * usual
    return _limit(transfers, i) or ("path" if is_path else None)


def _limit(transfers: Transfers, i: int) -> LinkEnd | None:
    """The end that limits, if one does."""
    if not transfers.busy_s[i] > 0:
        return None
    if transfers.receiver_s[i] >= LIMITS * transfers.busy_s[i]:
        return "receiver"
    return "sender" if transfers.sender_s[i] >= LIMITS * transfers.busy_s[i] else None
