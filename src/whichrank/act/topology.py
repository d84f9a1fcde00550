"""Which rank is to be in which place, so that what is slow costs least.

Two things are moved. Ranks that compute slowly come to stages in which they cost less, and of several each to another
replica, since a replica takes as long as its stages together and, for each further microbatch, as its longest one. And
heavy traffic leaves a slow link: gradients of gigabytes change places with activations of megabytes.

Ranks that share a stage of a replica (tensor parallelism) lie on one node and move together. Of up to seven such units
all orders are tried; of more the swap that gains most is made, again and again, of which one end is slow. Of two links
that are as slow neither alone is worth a swap: so at first a norm of what all replicas and links take is made less, and
then the longest ones.

Example: two stages of two replicas, a microbatch takes 10 ms, and there are eight. Ranks 0 and 1 are both in replica 0
and take twice as long: 20 + 20 + 7 x 20 = 180 ms. With one of them in the other replica: 20 + 10 + 7 x 20 = 170 ms.

Source: Greyhound, section 5.2, S3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.iterations import Floats, Ints

ALL_ORDERS: Final = 7
"""Units of which all orders are tried."""
MOST_AT_ONCE: Final = 1 << 22
"""Places of all orders that are looked at together: 32 MiB for each column."""
LEAST: Final = 1e-6
"""Share of the cost that a swap must gain to be made."""
MOST_SWAPS: Final = 64
POWER: Final = 4
"""Of the norm of what replicas and senders take, by which swaps are chosen at first."""


@dataclass(frozen=True)
class Cluster:
    """What is known of a job whose ranks can change places.

    Attributes:
        stage: Of each place, (R,).
        replica: Of each place, (R,).
        work_s: Of an iteration, what a rank that is well computes in each stage, (S,).
        factor: Times as long as that takes each rank, (R,).
        node: Of each rank, (R,).
        microbatches: Of a replica.
        sender: Places between which something goes, (E,).
        receiver: The other ends, (E,).
        size: Bytes of an iteration, (E,).
        byte_s: Seconds of a byte between two nodes, usually.
        slow: The same where it is not as usual, by sending and receiving node.
    """

    stage: Ints
    replica: Ints
    work_s: Floats
    factor: Floats
    node: Ints
    microbatches: int
    sender: Ints
    receiver: Ints
    size: Floats
    byte_s: float
    slow: Mapping[tuple[int, int], float]


Cost = Callable[[Cluster, NDArray[np.integer]], Floats]


def iterations_s(cluster: Cluster, orders: NDArray[np.integer]) -> Floats:
    """What an iteration takes with each of these orders, but for what they do not change, (B,).

    Args:
        cluster: The job.
        orders: The rank in each place, (B, R).
    """
    takes_s: Floats = _replicas_s(cluster, orders).max(axis=1) + _senders_s(cluster, orders).max(axis=1)
    return takes_s


def _together_s(cluster: Cluster, orders: NDArray[np.integer]) -> Floats:
    """The same, with all replicas and senders in it, the longer ones the more, (B,)."""
    return _norm(_replicas_s(cluster, orders)) + _norm(_senders_s(cluster, orders))


def _norm(takes_s: Floats) -> Floats:
    found: Floats = (takes_s**POWER).sum(axis=1) ** (1.0 / POWER)
    return found


def best_order(cluster: Cluster, order: Ints) -> Ints:
    """The order in which an iteration takes least, with as few ranks as possible elsewhere.

    Args:
        cluster: The job.
        order: The rank in each place now, (R,).
    """
    units = _units(cluster)
    if len(units) <= ALL_ORDERS:
        tried = np.array(list(permutations(range(len(units)))))
        orders = np.empty((len(tried), len(order)), np.int64)
        orders[:, units.reshape(-1)] = order[units[tried].reshape(len(tried), -1)]
        return _best(iterations_s, cluster, order, orders)
    found = order
    for cost in (_together_s, iterations_s):
        for _ in range(MOST_SWAPS):
            before, found = found, _best(cost, cluster, found, _swapped(cluster, found, units))
            if (found == before).all():
                break
    return _best(iterations_s, cluster, order, found[None])


def _replicas_s(cluster: Cluster, orders: NDArray[np.integer]) -> Floats:
    """What each replica computes, with its bubbles, (B, D)."""
    stages, replicas = int(cluster.stage.max()) + 1, int(cluster.replica.max()) + 1
    each_s = cluster.work_s[cluster.stage] / cluster.microbatches * cluster.factor[orders]  # (B, R), of a microbatch
    by_unit = np.argsort(cluster.replica * stages + cluster.stage, kind="stable")
    unit_s = each_s[:, by_unit].reshape(len(orders), replicas, stages, -1).max(axis=3)
    replica_s: Floats = unit_s.sum(axis=2) + (cluster.microbatches - 1) * unit_s.max(axis=2)
    return replica_s


def _senders_s(cluster: Cluster, orders: NDArray[np.integer]) -> Floats:
    """What each place that sends something needs for it, (B, senders)."""
    if not len(cluster.size):
        return np.zeros((len(orders), 1))
    sender, receiver = (cluster.node[orders[:, ends]] for ends in (cluster.sender, cluster.receiver))
    byte_s = np.where(sender == receiver, 0.0, cluster.byte_s)
    for (source, target), slow_s in cluster.slow.items():
        byte_s[(sender == source) & (receiver == target)] = slow_s
    by_place = np.argsort(cluster.sender, kind="stable")
    starts = np.flatnonzero(np.diff(cluster.sender[by_place], prepend=-1))
    sums: Floats = np.add.reduceat((byte_s * cluster.size)[:, by_place], starts, axis=1)
    return sums


def _units(cluster: Cluster) -> Ints:
    """Places that move together, (U, ranks of a unit)."""
    stages = int(cluster.stage.max()) + 1
    units = int(cluster.replica.max() + 1) * stages
    return np.argsort(cluster.replica * stages + cluster.stage, kind="stable").reshape(units, -1)


def _swapped(cluster: Cluster, order: Ints, units: Ints) -> Ints:
    """All orders in which one unit with something slow has changed places with another one, (B, R)."""
    slow_nodes = [node for pair in cluster.slow for node in pair]
    is_slow = (cluster.factor > 1.0) | np.isin(cluster.node, slow_nodes)
    first = np.flatnonzero(is_slow[order][units].any(axis=1))
    one, other = (side.reshape(-1) for side in np.meshgrid(first, np.arange(len(units)), indexing="ij"))
    most = max(1, MOST_AT_ONCE // len(order))
    if len(one) > most:  # of a large job some of them, in turn: many are alike
        chosen = np.linspace(0, len(one) - 1, most).astype(np.int64)
        one, other = one[chosen], other[chosen]
    orders = np.tile(order, (len(one), 1))
    rows = np.arange(len(one))[:, None]
    orders[rows, units[one]], orders[rows, units[other]] = order[units[other]], order[units[one]]
    return orders


def _best(cost: Cost, cluster: Cluster, order: Ints, orders: Ints) -> Ints:
    """The one of these that costs least, or the present one where none gains; of equal ones that which moves least."""
    now_s = float(cost(cluster, order[None])[0])
    if not len(orders):
        return order
    takes_s = cost(cluster, orders)
    if takes_s.min() >= now_s * (1 - LEAST):
        return order
    moved = (orders != order).sum(axis=1)
    alike = takes_s <= takes_s.min() * (1 + LEAST)
    best: Ints = orders[np.flatnonzero(alike)[np.argmin(moved[alike])]]
    return best
