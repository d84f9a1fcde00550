"""Which ranks a job's TCP connections join, and which of them are dead (DESIGN 5.1 and 5.2, `transport`).

A connection is seen from both ends, each by its own kernel: one row per end. The rank at the other end is the one that
has the mirrored addresses; behind a translation of addresses it stays unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.picture import Bools, Ints

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
    """Data is under way, was sent again and again, and nothing comes back."""
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
    local = _keys(rows["local_addr"], rows["local_port"], place)
    remote = _keys(rows["remote_addr"], rows["remote_port"], place)
    values, at = np.unique(np.concatenate((local, remote)), return_inverse=True)
    at = at.reshape(-1)
    owner = np.full(len(values), -1, np.int64)
    owner[at[: len(rows)]] = rows["rank"]
    info = rows["info"]
    # The kernel takes a step of its backoff back for each "host unreachable", but counts the retransmissions.
    tries = np.maximum(info["backoff"], info["retransmits"]).astype(np.int64)
    waiting = (info["unacked"] > 0) | (rows["unsent_bytes"] > 0)
    return Ends(
        rank=rows["rank"].astype(np.int64),
        peer=owner[at[len(rows) :]],
        dead=(tries >= DEAD_TRIES) & waiting,
        answered=(info["last_ack_recv_ms"] < ANSWERED_MS) & (tries == 0),
        tries=tries,
    )


def _is_loopback(addresses: NDArray[Any]) -> Bools:
    raw = np.ascontiguousarray(addresses).view(np.uint8).reshape(-1, 16)
    mapped = (raw[:, :12] == np.frombuffer(_MAPPED, np.uint8)).all(axis=1) & (raw[:, 12] == 127)
    return np.asarray(mapped | ((raw[:, :15] == 0).all(axis=1) & (raw[:, 15] == 1)))


def _keys(addresses: NDArray[Any], ports: NDArray[Any], place: Ints) -> NDArray[Any]:
    """Address, port and place as bytes that compare as a whole."""
    keys = np.zeros((len(ports), 24), np.uint8)
    keys[:, :16] = np.ascontiguousarray(addresses).view(np.uint8).reshape(-1, 16)
    keys[:, 16:18] = np.ascontiguousarray(ports, "<u2").view(np.uint8).reshape(-1, 2)
    keys[:, 20:] = np.ascontiguousarray(place, "<u4").view(np.uint8).reshape(-1, 4)
    return keys.view("V24").reshape(-1)
