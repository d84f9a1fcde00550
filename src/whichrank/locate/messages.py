"""Sends and receives: which belong together.

The n-th send of a rank to another with one tag meets the other's n-th receive from it with that tag.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whichrank.model.kinds import Kind
from whichrank.model.picture import Picture
from whichrank.model.signature import op_bytes


class Message(NamedTuple):
    """What both ends must agree on to meet."""

    comm: int
    sender: int
    receiver: int
    tag: int
    number: int


Ends = dict[Message, dict[int, int]]
"""By message, the rows of `Picture.ops` of its send and its receive, by kind."""


def message_ends(picture: Picture) -> Ends:
    """The known ends of all messages in flight or failed."""
    ops = picture.ops
    ends: Ends = {}
    for row in np.flatnonzero(((ops["kind"] == Kind.SEND) | (ops["kind"] == Kind.RECV)) & (ops["peer"] >= 0)).tolist():
        message = message_of(picture, ops[row])
        if message:
            ends.setdefault(message, {})[int(ops[row]["kind"])] = row
    return ends


def message_of(picture: Picture, op: np.void) -> Message | None:
    """The message that a send or a receive belongs to, None if its tag is not known."""
    comm, me, kind = int(op["comm"]), int(op["rank"]), int(op["kind"])
    peer = picture.group_rank_to_rank(comm, int(op["peer"]))
    tag = int(op["tag"])
    if op["failed"]:  # its record holds no tag: known only where the two use a single one
        pairs = picture.pairs
        of_both = (pairs["comm"] == comm) & (pairs["rank"] == me) & (pairs["kind"] == kind)
        tags = np.unique(pairs["tag"][of_both & (pairs["peer"] == op["peer"])])
        if len(tags) != 1:
            return None
        tag = int(tags[0])
    pair = (me, peer) if kind == Kind.SEND else (peer, me)
    return Message(comm, *pair, tag, int(op["counter"]))


def sizes_differ(picture: Picture, ends: dict[int, int]) -> bool:
    """Are both ends known, and one sends what the other does not expect?"""
    if len(ends) < 2:
        return False
    sizes = {op_bytes(int(op["dtype"]), int(op["count"])) for op in picture.ops[list(ends.values())]}
    return len(sizes) > 1 and None not in sizes
