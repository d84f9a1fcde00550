"""Which ranks a job's TCP connections join, and which of them are dead (DESIGN 5.1 and 5.2, `transport`).

A connection is seen from both ends, each by its own kernel: one row per end. The rank at the other end is the one that
has the mirrored addresses; behind a translation of addresses it stays unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.picture import Bools, Ints

DEAD_TRIES = 3
"""Retransmissions in a row without an answer, each after twice the time: at Linux's least of 0.2 s, after 1.4 s."""
MORE_TRIES = 1
"""So many more where paths work and lose data: of a loss of 5 % each more try leaves a twentieth of what looks dead."""
LOSES, LEAST_LOST = 0.005, 8
"""Share of a node's segments that are sent again, and how many: bursts of a job's own have had 0.3 % (lab)."""
ANSWERED_MS = 1500
"""An acknowledgement that is younger shows that the path works."""
_MAPPED = bytes(10) + b"\xff\xff"
_LOCAL, _REMOTE = ("local_addr", "local_port"), ("remote_addr", "remote_port")


@dataclass(frozen=True)
class ConnectionEnds:
    """Ends of connections, one row each."""

    rank: Ints
    peer: Ints
    """The rank at the other end, -1 unknown."""
    dead: Bools
    """Data is under way, was sent again and again, and is not acknowledged."""
    answered: Bools
    """The other side has acknowledged something just before the snapshot."""
    tries: Ints
    """Retransmissions in a row without an answer."""


def ends_of(rows: np.ndarray[Any, Any], node: Ints, loses: Bools | bool = False) -> ConnectionEnds:
    """Join the ends of connections.

    Args:
        rows: Rows of TCP_ROW of all nodes.
        node: The node of each, since loopback addresses mean something on one node only.
        loses: Whether the paths of its node lose data, see `loses_data`.
    """
    place = np.where(is_loopback(rows["local_addr"]), node + 1, 0)
    # By both ends: processes may share an address and port if they are connected to different ones.
    mine, theirs = _keys(rows, _LOCAL, _REMOTE, place), _keys(rows, _REMOTE, _LOCAL, place)
    values, at = np.unique(np.concatenate((mine, theirs)), return_inverse=True)
    at = at.reshape(-1)
    owner = np.full(len(values), -1, np.int64)
    owner[at[: len(rows)]] = rows["rank"]
    info = rows["info"]
    # Not the backoff: it grows too while a receiver that lives does not read, and shrinks for "host unreachable".
    tries = info["retransmits"].astype(np.int64)
    return ConnectionEnds(
        rank=rows["rank"].astype(np.int64),
        peer=owner[at[len(rows) :]],
        dead=(tries >= DEAD_TRIES + MORE_TRIES * loses) & (info["unacked"] > 0),
        answered=(info["last_ack_recv_ms"] < ANSWERED_MS) & (tries == 0),
        tries=tries,
    )


def loses_data(rows: np.ndarray[Any, Any], before: np.ndarray[Any, Any]) -> bool:
    """Whether the paths from a node work and lose some of what it sends: sent again, and answered.

    Args:
        rows: Rows of TCP_ROW, of one look at its connections.
        before: Of an earlier one.
    """
    if not _is_much(rows["info"], before["info"]):  # of all: it is rarely worth it to find the same ones
        return False
    now, then = (_keys(snapshot, _LOCAL, _REMOTE, np.zeros(len(snapshot), np.int64)) for snapshot in (rows, before))
    _, at, earlier = np.intersect1d(now, then, return_indices=True)
    works = (rows["info"]["retransmits"][at] == 0) & ~is_loopback(rows["local_addr"][at])
    return _is_much(rows["info"][at[works]], before["info"][earlier[works]])


def _is_much(info: np.ndarray[Any, Any], was: np.ndarray[Any, Any]) -> bool:
    again, sent = (
        int(info[name].sum(dtype=np.int64) - was[name].sum(dtype=np.int64))
        for name in ("total_retrans", "data_segs_out")
    )
    return again >= max(LEAST_LOST, LOSES * sent)


def address_text(address: bytes) -> str:
    """An address of 16 bytes, as people write it."""
    known = IPv6Address(address.ljust(16, b"\0"))
    return str(known.ipv4_mapped or known)


def is_loopback(addresses: NDArray[Any]) -> Bools:
    """Which of these addresses of 16 bytes mean a node itself."""
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
