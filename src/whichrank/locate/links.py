"""Which ranks a job's TCP connections join, and which of them are dead (DESIGN 5.1 and 5.2, `transport`).

A connection is seen from both ends, each by its own kernel: one row per end. The rank at the other end is the one that
has the mirrored addresses; behind a translation of addresses it stays unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.incident import LinkEnd
from whichrank.model.links import LinkRate, SlowLink, Transfers
from whichrank.model.picture import Bools, Floats, Ints

DEAD_TRIES = 3
"""Retransmissions in a row without an answer, each after twice the time: at Linux's least of 0.2 s, after 1.4 s."""
ANSWERED_MS = 1500
"""An acknowledgement that is younger shows that the path works."""
_MAPPED = bytes(10) + b"\xff\xff"


@dataclass(frozen=True)
class Ends:
    """Ends of connections, one row each."""

    rank: Ints
    peer: Ints
    """The rank at the other end, -1 unknown."""
    dead: Bools
    """Data is under way, was sent again and again, and is not acknowledged."""
    answered: Bools
    """The other side has acknowledged something just before the look."""
    tries: Ints
    """Retransmissions in a row without an answer."""


def ends_of(rows: np.ndarray[Any, Any], node: Ints) -> Ends:
    """Join the ends of connections.

    Args:
        rows: Rows of TCP_ROW of all nodes.
        node: The node of each, since loopback addresses mean something on one node only.
    """
    place = np.where(_is_loopback(rows["local_addr"]), node + 1, 0)
    local, remote = ("local_addr", "local_port"), ("remote_addr", "remote_port")
    # By both ends: processes may share an address and port if they are connected to different ones.
    mine, theirs = _keys(rows, local, remote, place), _keys(rows, remote, local, place)
    values, at = np.unique(np.concatenate((mine, theirs)), return_inverse=True)
    at = at.reshape(-1)
    owner = np.full(len(values), -1, np.int64)
    owner[at[: len(rows)]] = rows["rank"]
    info = rows["info"]
    # Not the backoff: it grows too while a receiver that lives does not read, and shrinks for "host unreachable".
    tries = info["retransmits"].astype(np.int64)
    return Ends(
        rank=rows["rank"].astype(np.int64),
        peer=owner[at[len(rows) :]],
        dead=(tries >= DEAD_TRIES) & (info["unacked"] > 0),
        answered=(info["last_ack_recv_ms"] < ANSWERED_MS) & (tries == 0),
        tries=tries,
    )


def _is_loopback(addresses: NDArray[Any]) -> Bools:
    raw = np.ascontiguousarray(addresses).view(np.uint8).reshape(-1, 16)
    mapped = (raw[:, :12] == np.frombuffer(_MAPPED, np.uint8)).all(axis=1) & (raw[:, 12] == 127)
    return np.asarray(mapped | ((raw[:, :15] == 0).all(axis=1) & (raw[:, 15] == 1)))


def _keys(rows: np.ndarray[Any, Any], one: tuple[str, str], other: tuple[str, str], place: Ints) -> NDArray[Any]:
    """Both ends and the place as bytes that compare as a whole."""
    keys = np.zeros((len(rows), 40), np.uint8)
    for at, (address, port) in ((0, one), (18, other)):
        keys[:, at : at + 16] = np.ascontiguousarray(rows[address]).view(np.uint8).reshape(-1, 16)
        keys[:, at + 16 : at + 18] = np.ascontiguousarray(rows[port], "<u2").view(np.uint8).reshape(-1, 2)
    keys[:, 36:] = np.ascontiguousarray(place, "<u4").view(np.uint8).reshape(-1, 4)
    return keys.view("V40").reshape(-1)


SLOWER = 0.5
"""Of the usual rate, from which a link is slow."""
LEAST_BYTES = 1 << 18
LEAST_ACTIVE = 0.02
"""Share of the window in which something was under way, for a rate to mean anything."""
LEAST_ALIKE = 3
"""Comparable links, to know what is usual without a past."""
ALIKE = 4.0
"""Times as many bytes as another, at most, for two links to be comparable."""
MOST_LIKELY = 256
"""Links that are compared with those like them, the slowest."""
CLEARLY = 1.05
"""Times as fast, from which one of two slow ways is the faster one."""
LIMITS = 0.5
"""Share of the busy time from which a limit names an end."""


class LinkPast:
    """The best rate that each link has had."""

    def __init__(self) -> None:
        self._best: dict[tuple[int, int], float] = {}

    def usual(self, transfers: Transfers) -> Floats:
        """Bytes per second that each link has had at best, NaN where none is known."""
        pairs = zip(transfers.src.tolist(), transfers.dst.tolist(), strict=True)
        return np.array([self._best.get(pair, np.nan) for pair in pairs])

    def learn(self, transfers: Transfers) -> None:
        """Take a window that is over."""
        rate = rates_of(transfers)
        for src, dst, value in zip(transfers.src.tolist(), transfers.dst.tolist(), rate.tolist(), strict=True):
            if value > self._best.get((src, dst), 0.0):  # never for NaN
                self._best[src, dst] = value


def rates_of(transfers: Transfers) -> Floats:
    """Bytes per second in which something was under way, NaN where that was too little."""
    active_s = transfers.active_s
    known = (transfers.bytes_acked >= LEAST_BYTES) & (active_s >= LEAST_ACTIVE * transfers.lasted_s) & (active_s > 0)
    rates: Floats = np.divide(transfers.bytes_acked, active_s, out=np.full(len(active_s), np.nan), where=known)
    return rates


def matrix_of(transfers: Transfers, node: Ints, past: LinkPast, most: int) -> tuple[LinkRate, ...]:
    """The rates that are known between nodes, the slowest first.

    Args:
        transfers: One window.
        node: By rank, its node.
        past: The best rates so far.
        most: Cells, at most.
    """
    rate, best = rates_of(transfers), past.usual(transfers)
    known = np.flatnonzero((node[transfers.src] != node[transfers.dst]) & ~np.isnan(rate))
    busy = transfers.active_s / max(transfers.lasted_s, 1e-9)
    return tuple(
        LinkRate(
            src=int(transfers.src[i]), dst=int(transfers.dst[i]), rate=round(float(rate[i])),
            best=None if np.isnan(best[i]) else round(float(best[i])), busy=round(float(busy[i]), 4),
        )
        for i in known[np.argsort(rate[known], kind="stable")][:most].tolist()
    )  # fmt: skip


def slow_links(transfers: Transfers, node: Ints, past: LinkPast) -> list[SlowLink]:
    """Links between nodes that are slower than comparable ones, or than they were (C4D's matrix, section III.A).

    Their end is where the sender's kernel sees the fault: bytes wait to be sent, an end limits, or its own estimate of
    the rate is as low. Where it sees none, it is None, and the way back may be slow: acknowledgements come late, and
    what they answer only looks slow.

    Args:
        transfers: One window.
        node: By rank, its node; links within a node are no network.
        past: The best rates so far.
    """
    rate, before = rates_of(transfers), past.usual(transfers)
    between = node[transfers.src] != node[transfers.dst]
    # What is usual is no more than the fastest, so only these can be slow; at large sizes the slowest are enough.
    fastest = np.fmax(before, np.nanmax(rate[between], initial=0.0))
    likely = np.flatnonzero(between & (rate < SLOWER * fastest))
    found = []
    for i in likely[np.argsort(rate[likely], kind="stable")][:MOST_LIKELY].tolist():
        mine = transfers.bytes_acked[i]
        alike = between & ~np.isnan(rate) & (transfers.bytes_acked <= ALIKE * mine)
        alike &= ALIKE * transfers.bytes_acked >= mine
        alike[i] = False
        usual = float(np.median(rate[alike])) if alike.sum() >= LEAST_ALIKE else 0.0
        usual = max(usual, 0.0 if np.isnan(before[i]) else float(before[i]))
        if usual and rate[i] < SLOWER * usual:
            lost_s = float(transfers.active_s[i] - mine / usual)
            src, dst = int(transfers.src[i]), int(transfers.dst[i])
            unsent = int(transfers.unsent_bytes[i])
            found.append(SlowLink(src, dst, float(rate[i]), usual, _end(transfers, i, usual), lost_s, unsent))
    return sorted(found, key=lambda link: -link.lost_s)


def without_ways_back(slow: list[SlowLink], node: Ints) -> list[SlowLink]:
    """Of slow links those that are slow themselves, where a kernel sees something on the way or at an end.

    What a node sends carries its acknowledgements too. Where all that it sends is slow, they come late, and who sends
    to it has to wait for them: bytes pile up in front of a way that is sound. So where both ways of a node are slow,
    what it sends is told if that is clearly the slower one, else neither: it cannot be known which of them makes the
    other look slow. What limits at an end is told in any case.

    Args:
        slow: From `slow_links`.
        node: By rank, its node.
    """
    told = [link for link in slow if link.end in ("receiver", "sender")]
    paths = [link for link in slow if link.end not in ("receiver", "sender")]
    source, target = [int(node[link.src]) for link in paths], [int(node[link.dst]) for link in paths]
    seen = {i for i, link in enumerate(paths) if link.end == "path"}
    excused: set[int] = set()

    def slowest(of: int) -> float:
        return min(link.rate for link, at in zip(paths, source, strict=True) if at == of)

    for both in sorted(set(source) & set(target), key=slowest):
        out = {i for i, at in enumerate(source) if at == both} - excused
        back = {i for i, at in enumerate(target) if at == both} - excused
        if not out or not back:
            continue
        if seen & (out | back):
            seen |= out
        out_rate, back_rate = (float(np.median([paths[i].rate for i in way])) for way in (out, back))
        excused |= back if out_rate * CLEARLY < back_rate else out | back
    told += [replace(paths[i], end="path") for i in sorted(seen - excused)]
    return sorted(told, key=lambda link: -link.lost_s)


def _end(transfers: Transfers, i: int, usual: float) -> LinkEnd | None:
    """Where the fault is by the word of the sender's kernel; None if it knows of none."""
    busy_s = transfers.busy_s[i]
    if transfers.receiver_s[i] >= LIMITS * busy_s:
        return "receiver"
    if transfers.sender_s[i] >= LIMITS * busy_s:
        return "sender"
    is_path = transfers.unsent_bytes[i] > 0 or transfers.delivery[i] < SLOWER * usual
    return "path" if is_path else None
