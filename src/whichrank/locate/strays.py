"""Ranks in the same position: the one that leaves what the others go on to do alike.

Tensor- and data-parallel peers of one pipeline stage run the same program, so their n-th operations are alike (same
role, same signature). Where one of at least three leaves out or repeats operations and then goes on as the others do,
some places apart, its communicators' counts are wrong from there on. No period has to be learnt, and whatever the
program does now and then (a log line, an evaluation, new groups) all of them do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whichrank.model.sequence import Shapes

LEAST_ALIKE = 12
"""Operations that make a position, before the first that differs."""
MAX_SHIFT = 3
"""Operations that a rank may have left out or added: more are another program."""
PEERS = 2
"""Others that must agree with each other, so that one against them is the exception."""
LEAST_AGAINST = 3
"""The same where nothing is known of how it goes on."""


@dataclass(frozen=True)
class Stray:
    """Where a rank left its peers."""

    peer: int
    """One of those that agree."""
    at: int
    """Place of the first operation that differs, in the tokens compared."""
    shift: int
    """Operations too many, or too few if negative."""
    lasted: int
    """Operations since that are the peers' again."""
    either: bool
    """As many too few would explain it as well, or too many."""


def stray(rank: int, tokens: Mapping[int, Shapes]) -> Stray | None:
    """Has this rank left the peers that it had?

    Args:
        rank: The rank in question.
        tokens: By rank, what each of its operations is on any communicator of that role, from one and the same place
            of each rank's sequence on, oldest first; of this rank and of all that may be its peers.
    """
    mine = tokens[rank]
    alike = {other: _alike(mine, theirs) for other, theirs in tokens.items() if other != rank}
    if not alike:
        return None
    at = max(alike.values())
    # Those that went along with it until it left, and have got further themselves.
    peers = [other for other, n in alike.items() if n == at and len(tokens[other]) > at]
    if at < LEAST_ALIKE or at >= len(mine) or len(peers) < PEERS:
        return None
    by_shift = {}
    for shift in (steps * sign for steps in range(1, MAX_SHIFT + 1) for sign in (-1, 1)):
        begin, resume = at + max(shift, 0), at + max(-shift, 0)
        lasted = sorted(((_alike(mine[begin:], tokens[p][resume:]), p) for p in peers), key=lambda it: (-it[0], it[1]))
        n, peer = lasted[PEERS - 1]
        by_shift[shift] = n, peer, n == min(len(mine) - begin, len(tokens[peer]) - resume)
    shift, (n, peer, _) = max(by_shift.items(), key=lambda item: item[1][0])
    for changed in range(1, MAX_SHIFT + 1):
        # As many operations, some of them changed: then nothing was left out or added.
        if sum(_alike(mine[at + changed :], tokens[p][at + changed :]) >= n for p in peers) >= PEERS:
            return None
    best = Stray(peer, at, shift, n, either=by_shift[-shift][2])
    return best if _agree(best, peers, tokens) else None


def lone(mine: Shapes, others: Sequence[Shapes]) -> int | None:
    """What all others did where this rank, after the same operations, has just done something else.

    Args:
        mine: What its operations are on any communicator of their role, up to the one in question.
        others: The same of ranks that may be its peers, as far as they have come, from the same place on.

    Returns:
        None if they are no majority, or do not agree.
    """
    at = len(mine) - 1
    there = [int(theirs[at]) for theirs in others if len(theirs) > at and _alike(mine[:at], theirs) == at]
    is_majority = len(there) >= LEAST_AGAINST and 2 * len(there) > len(others) + 1
    if at < LEAST_ALIKE or not is_majority or len(set(there)) > 1 or there[0] == int(mine[at]):
        return None
    return there[0]


def _agree(found: Stray, peers: list[int], tokens: Mapping[int, Shapes]) -> bool:
    """Do enough peers do the same for as long as the stray has followed them since?"""
    end = found.at + max(-found.shift, 0) + found.lasted
    model = tokens[found.peer][:end]
    return sum(_alike(model, tokens[p]) == end for p in peers) >= PEERS


def _alike(a: Shapes, b: Shapes) -> int:
    """How many operations from the beginning on are the same."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n
