"""MegaTrace's rule for hangs (paper, section III.C and algorithm 1): no telemetry for twice a batch.

Decided: a batch is an iteration, by its optimizer steps. "Completed batches" of a rank are the operations that it has
begun, in its group: what it waits in counts. Of those with the fewest the one whose latest word is the oldest is the
halt point; the paper's minimum of `time_diff` does not say between what. A sender and its receiver are a group too
(section III.A, pipeline communication): the one that has begun fewer of their messages is behind. Of the halt points of
several groups those count that wait for nobody themselves. Network anomalies are connections that send
again in vain, in place of work requests that do not complete: a kernel has done so three times after two seconds, and
the paper validates the network before it localises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from whichrank.model.kinds import Kind
from whichrank.model.picture import Ints
from whichrank.testbed.bench.methods.method import Limits, Said
from whichrank.testbed.bench.methods.telemetry import Telemetry

BATCHES = 2.0
WARM_UP = 3
VALIDATED_S = 2.5


class MegaTrace:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._is_reported = False
        self._counts = b""
        self._since_s = 0.0

    def examine(self, seen: Telemetry) -> list[Said]:
        """See `method.Method`."""
        picture = seen.picture
        counts = picture.member_done.tobytes() + picture.member_issued.tobytes() + picture.pairs.tobytes()
        counts += picture.gone.tobytes()
        if counts != self._counts:
            self._counts, self._since_s, self._is_reported = counts, seen.now_s, False
            return []
        batch_s = _batch_s(seen)
        silent_s = seen.now_s - self._since_s
        if self._is_reported or seen.has_ended or not batch_s or silent_s <= BATCHES * batch_s:
            return []
        ends, _ = seen.store.paths.ends(seen.now_s)
        dead = {(int(a), int(b)) for a, b in zip(ends.rank[ends.dead], ends.peer[ends.dead], strict=True) if b >= 0}
        if not dead and silent_s < VALIDATED_S:
            return []
        self._is_reported = True
        if dead:
            return [Said("hang", links=frozenset(dead), fault_class="H3")]
        return [Said("hang", frozenset(_halt_point(seen)), fault_class="H1")]


def _batch_s(seen: Telemetry) -> float:
    """Usual time between steps of a rank, 0 unknown."""
    if not seen.steps:
        return 0.0
    first = seen.steps[0][0]
    at = np.array([t for rank, t in seen.steps if rank == first])[WARM_UP:]
    return float(np.diff(at).mean()) if len(at) > 1 else 0.0


@dataclass(frozen=True)
class _Group:
    """Ranks whose operations come together: the members of a communicator, or a sender and its receiver.

    Attributes:
        ranks: Global ranks.
        begun: Operations that each has begun.
        waiting: A rank and the number of an operation of the group that it is in.
    """

    ranks: Ints
    begun: Ints
    waiting: frozenset[tuple[int, int]]


def _halt_point(seen: Telemetry) -> set[int]:
    """Of each group that is apart, of the ranks that have begun least, the one that has stood still for longest.

    Of these only those that wait in no group for others, if there are some. Example: stage 2 of a pipeline is stopped,
    stage 3 waits to receive from it, and stage 1 to send to it. In both pairs stage 2 has begun less and does not wait.
    """
    named: set[int] = set()
    victims: set[int] = set()
    for group in (*_collectives(seen), *_messages(seen)):
        if not len(group.ranks) or np.ptp(group.begun) == 0:
            continue
        least = int(group.begun.min())
        behind = group.ranks[group.begun == least]
        named.add(int(behind[seen.store.ranks.went_on_s[behind].argmin()]))
        victims |= {rank for rank, counter in group.waiting if counter > least}
    return named - victims or named


def _collectives(seen: Telemetry) -> Iterator[_Group]:
    waiting = seen.waiting()
    for comm in range(len(seen.picture.comm_size)):
        ranks, begun, _ = seen.members(comm)
        mine = waiting.comm == comm
        inside = zip(waiting.rank[mine].tolist(), waiting.counter[mine].tolist(), strict=True)
        yield _Group(ranks[ranks >= 0], begun[ranks >= 0], frozenset(inside))


def _messages(seen: Telemetry) -> Iterator[_Group]:
    """Each sender with its receiver, by communicator and tag; who receives from anybody is left out."""
    picture, members = seen.picture, seen.store.comms.members
    begun: defaultdict[tuple[int, int, int, int], dict[int, int]] = defaultdict(dict)
    inside: defaultdict[tuple[int, int, int, int], set[tuple[int, int]]] = defaultdict(set)
    pairs = picture.pairs[picture.pairs["kind"] != Kind.RECV_ANY]
    for row, peer in zip(pairs, members(pairs["comm"], pairs["peer"]).tolist(), strict=True):
        if peer >= 0:
            begun[_pair_of(row, peer)][int(row["rank"])] = int(row["issued"])
    ops = picture.ops
    ops = ops[np.isin(ops["kind"], (Kind.SEND, Kind.RECV)) & ~ops["failed"] & ~picture.gone[ops["rank"]]]
    for op, peer in zip(ops, members(ops["comm"], ops["peer"]).tolist(), strict=True):
        inside[_pair_of(op, peer)].add((int(op["rank"]), int(op["counter"])))
    for pair, counts in begun.items():
        ranks = np.array(pair[1:3])
        yield _Group(ranks, np.array([counts.get(rank, 0) for rank in ranks.tolist()]), frozenset(inside[pair]))


def _pair_of(row: np.void, peer: int) -> tuple[int, int, int, int]:
    """Communicator, sender, receiver and tag of a row of PAIRS or OPS."""
    rank = int(row["rank"])
    sender, receiver = (rank, peer) if row["kind"] == Kind.SEND else (peer, rank)
    return int(row["comm"]), sender, receiver, int(row["tag"])
