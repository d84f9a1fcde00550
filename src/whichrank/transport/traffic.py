"""What went from rank to rank in the latest window, as the senders' kernels and the receivers' reads counted it.

The counters of a connection only grow, so two snapshots say what happened in between, however far apart they are. A
connection is known by both of its ends, and by the rank that reported it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from whichrank.locate.links import ConnectionEnds
from whichrank.model.links import Transfers
from whichrank.model.picture import Floats, Ints
from whichrank.model.places import places

SAMPLES: Final = 16
"""Of all connections, kept; the oldest first to go."""
LEAST_RESENT: Final = 10
"""Segments that were sent again, for their share to mean anything."""
_SEGMENT: Final = 1448.0
"""Bytes of payload in a segment over Ethernet: what was sent again is counted in segments."""
_ALMOST: Final = 0.8
"""Looks come when they come, the first ones sooner: so much of half a window is one."""
_SAMPLE: Final = np.dtype(
    [
        ("src", "i4"),
        ("dst", "i4"),
        ("ports", "u4"),
        ("pad", "u4"),
        ("read_ns", "u8"),
        ("bytes", "u8"),
        ("busy_us", "u8"),
        ("receiver_us", "u8"),
        ("sender_us", "u8"),
        ("retransmits", "u8"),
        ("unsent", "u8"),
        ("unacked", "u8"),
        ("unread", "u8"),  # by src, of what came from dst
        ("delivery", "u8"),
        ("arrived", "u8"),  # on the same connection, the other path: from dst to src
        ("arrival_rate", "f8"),
    ]
)
_Snapshot = tuple[Ints, np.ndarray[Any, Any]]


class _Half(NamedTuple):
    """By pair, what went over in half a window, and the share of it that was sent again."""

    bytes: Floats
    resent: Floats


class Traffic:
    """Samples of the connections of a job."""

    def __init__(self) -> None:
        self._samples: deque[np.ndarray[Any, Any]] = deque(maxlen=SAMPLES)

    def sample(self, ends: ConnectionEnds, rows: np.ndarray[Any, Any]) -> None:
        """Keep what is known now.

        Args:
            ends: The connections, joined.
            rows: The same as rows of TCP_ROW.
        """
        known = (ends.peer >= 0) & (ends.peer != ends.rank)
        rows, info = rows[known], rows["info"][known]
        sample = np.zeros(len(rows), _SAMPLE)
        sample["src"], sample["dst"] = ends.rank[known], ends.peer[known]
        sample["ports"] = rows["local_port"].astype(np.uint32) << 16 | rows["remote_port"]
        sample["read_ns"] = rows["read_ns"]
        sample["bytes"], sample["busy_us"] = info["bytes_acked"], info["busy_us"]
        sample["receiver_us"], sample["sender_us"] = info["rwnd_limited_us"], info["sndbuf_limited_us"]
        sample["retransmits"], sample["unsent"] = info["total_retrans"], info["notsent_bytes"]
        sample["unacked"], sample["unread"] = rows["unsent_bytes"], rows["unread_bytes"]
        sample["delivery"] = info["delivery_rate"]
        sample["arrived"], sample["arrival_rate"] = rows["arrived_bytes"], rows["arrival_rate"]
        if not self._samples or not np.array_equal(sample, self._samples[-1]):
            self._samples.append(sample)

    def forget(self) -> None:
        """Begin anew."""
        self._samples.clear()

    def transfers(self, window_s: float) -> Transfers:
        """Sums over the connections from each rank to each other one.

        Args:
            window_s: How far to look back, by each sender's clock.
        """
        latest = self._samples[-1] if self._samples else np.zeros(0, _SAMPLE)
        known = list(self._known(latest))
        polls = [_within(snapshot, latest, window_s) for snapshot in known]
        pairs, out = np.unique(_pair(latest, "src", "dst"), return_inverse=True)
        out = out.reshape(-1)
        then, most_unsent = latest.copy(), latest["unsent"].copy()
        unacked, unread = np.zeros(len(latest)), np.zeros(len(latest))
        for place, of in polls:
            then[place] = of
            most_unsent[place] = np.maximum(most_unsent[place], of["unsent"])
            unacked[place] += of["unacked"]
            unread[place] += of["unread"]

        def total(name: str, scale: float) -> Floats:
            return scale * _grown(name, then, latest, out, len(pairs))

        delivery, moved = np.zeros(len(pairs)), latest["bytes"] > then["bytes"]
        np.maximum.at(delivery, out[moved], latest["delivery"][moved].astype(np.float64))
        back = places(_pair(latest, "dst", "src"), pairs)
        arrived_bytes, arrival = _arrivals(latest, polls, back, len(pairs))
        halves = _halves(latest, known, window_s, out, len(pairs))
        seconds = (latest["read_ns"].astype(np.int64) - then["read_ns"].astype(np.int64)) / 1e9
        return Transfers(
            src=pairs >> 32,
            dst=pairs & 0xFFFFFFFF,
            bytes_acked=total("bytes", 1.0),
            busy_s=total("busy_us", 1e-6),
            receiver_s=total("receiver_us", 1e-6),
            sender_s=total("sender_us", 1e-6),
            steady_bytes=np.minimum(*(half.bytes for half in halves)),
            resent=np.minimum(*(half.resent for half in halves)),
            resent_lately=halves[0].resent,
            unsent_bytes=np.bincount(out, most_unsent.astype(np.float64), len(pairs)).astype(np.float64),
            unacked_bytes=np.bincount(out, unacked, len(pairs)).astype(np.float64),
            unread_bytes=np.bincount(back[back >= 0], unread[back >= 0], len(pairs)).astype(np.float64),
            delivery=np.where(delivery > 0, delivery, np.inf),
            arrived_bytes=arrived_bytes,
            arrival=arrival,
            lasted_s=float(seconds.max(initial=0.0)),
        )

    def _known(self, latest: np.ndarray[Any, Any]) -> Iterator[_Snapshot]:
        """For each sample, the newest first: which of the latest ends it has, and how they were."""
        keys = _key(latest)
        for sample in reversed(self._samples):
            at = places(keys, _key(sample))
            known = at >= 0
            yield np.flatnonzero(known), sample[at[known]]


def _within(snapshot: _Snapshot, latest: np.ndarray[Any, Any], window_s: float) -> _Snapshot:
    """Of a look at ends that which is not older than this."""
    place, of = snapshot
    recent = latest["read_ns"][place].astype(np.int64) - of["read_ns"] <= window_s * 1e9
    return place[recent], of[recent]


def _halves(
    latest: np.ndarray[Any, Any], known: list[_Snapshot], window_s: float, out: Ints, pairs: int
) -> tuple[_Half, _Half]:
    """The latest two halves of a window, or the least that was looked at that is not shorter.

    Args:
        latest: The newest sample.
        known: How its ends were, the newest first.
        window_s: By each sender's clock.
        out: The pair of each end.
        pairs: How many there are.
    """
    cuts = [latest]
    for _ in range(2):
        later, cut = cuts[-1], cuts[-1].copy()
        is_found = np.zeros(len(latest), np.bool_)
        for place, of in known:
            age_s = (later["read_ns"][place].astype(np.int64) - of["read_ns"]) / 1e9
            take = (age_s >= _ALMOST * window_s / 2) & ~is_found[place]
            cut[place[take]], is_found[place[take]] = of[take], True
        cuts.append(cut)
    return _half(cuts[1], cuts[0], out, pairs), _half(cuts[2], cuts[1], out, pairs)


def _grown(name: str, then: np.ndarray[Any, Any], now: np.ndarray[Any, Any], out: Ints, pairs: int) -> Floats:
    """By how much a counter has grown, summed over the ends of each pair."""
    more = np.maximum(now[name].astype(np.int64) - then[name].astype(np.int64), 0)
    return np.bincount(out, more, pairs).astype(np.float64)


def _half(then: np.ndarray[Any, Any], now: np.ndarray[Any, Any], out: Ints, pairs: int) -> _Half:
    carried, again = (_grown(name, then, now, out, pairs) for name in ("bytes", "retransmits"))
    is_some = (again >= LEAST_RESENT) & (carried > 0)
    return _Half(carried, np.divide(again * _SEGMENT, carried, out=np.zeros(pairs), where=is_some))


def _arrivals(latest: np.ndarray[Any, Any], polls: list[_Snapshot], back: Ints, pairs: int) -> tuple[Floats, Floats]:
    """Bytes that arrived, and the pace at which the middle byte did, times the connections that carry alike.

    Args:
        latest: The newest sample; what arrives at a rank is on its own end.
        polls: How its ends were, the newest first.
        back: The pair for which each end is the receiving one, -1 none.
        pairs: How many there are.
    """
    later = latest.copy()
    ends, steps, rates = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for place, of in polls:
        ends.append(place)
        steps.append(later["arrived"][place].astype(np.int64) - of["arrived"].astype(np.int64))
        rates.append(later["arrival_rate"][place])
        later[place] = of
    end, grown, rate = np.concatenate(ends), np.concatenate(steps), np.concatenate(rates)
    some = (grown > 0) & (rate > 0) & (back[end] >= 0)
    end, grown, rate = end[some], grown[some], rate[some]
    total = np.bincount(back[end], grown, pairs).astype(np.float64)
    most = np.zeros(pairs)
    np.maximum.at(most, back[end], np.bincount(end, grown, len(latest))[end])
    alike = np.divide(total, most, out=np.ones(pairs), where=most > 0)
    return total, alike * _middle(back[end], grown, rate, pairs)


def _middle(group: Ints, weight: Ints, value: Floats, groups: int) -> Floats:
    """By group the value at which half of the weight is reached, NaN for a group without any."""
    order = np.lexsort((value, group))
    group, weight, value = group[order], weight[order], value[order]
    first = np.searchsorted(group, np.arange(groups + 1))
    reached = np.concatenate(([0], np.cumsum(weight)))
    half = (reached[first[:-1]] + reached[first[1:]]) / 2
    place = np.searchsorted(reached[1:], half)
    found = np.full(groups, np.nan)
    filled = first[1:] > first[:-1]
    found[filled] = value[place[filled]]
    return found


def _pair(sample: np.ndarray[Any, Any], one: str, other: str) -> Ints:
    return np.asarray(sample[one].astype(np.int64) << 32 | sample[other])


def _key(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Ranks are below 2^20, so sender and ports fit beside a hash of the receiver."""
    pair = rows["src"].astype(np.uint64) << np.uint64(44) | rows["ports"].astype(np.uint64) << np.uint64(12)
    return np.asarray(pair | (rows["dst"].astype(np.uint64) & np.uint64(0xFFF)))
