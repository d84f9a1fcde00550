"""Bisection: the job has been given up, and training runs again on pairs of nodes: who fails with whom says who is bad.

Rounds are those of a tournament, so that all nodes are tried at once. A pair is bad if it does not train, or, where all
do, if it trains much more slowly than the fastest one. A node that does well with any other is cleared: where one of a
bad pair is, it is the other; where both are, it is what is between them. It ends as soon as all bad pairs are decided,
or all have met.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from whichrank.testbed.bench.methods.word import Word

Pair = tuple[int, int]
SLOWER: Final = 2.0
"""Than the fastest pair; two pairs at once share this machine's cores."""


@dataclass(frozen=True)
class Found:
    """Whom the bad pairs leave.

    Attributes:
        nodes: That are bad with all others they met.
        pairs: Between which it is.
        is_decided: There is no bad pair of which more is to be known.
    """

    nodes: frozenset[int]
    pairs: frozenset[Pair]
    is_decided: bool


def bisect(train: Callable[[Sequence[Pair]], Mapping[Pair, float | None]], nodes: int, local: int) -> list[Word]:
    """Find the bad node or the bad way after the job has ended.

    Args:
        train: Trains on pairs of nodes at once; seconds of an iteration of each, None if none was done.
        nodes: How many there are.
        local: Ranks of the job on each node.

    Returns:
        A word, or nothing if all pairs do well.
    """
    begun_s, times = time.monotonic(), dict[Pair, float | None]()
    for number, pairs in enumerate(rounds(nodes)):
        times |= train(pairs)
        good = is_good(times)
        found = decide(good)
        if found.is_decided and number:
            break
    bad = [pair for pair, fine in good.items() if not fine]
    if not bad:
        return []
    now_s = time.monotonic()
    return [
        Word(
            round(now_s, 3), round(1e3 * (now_s - begun_s), 3),
            "slow" if all(times[pair] is not None for pair in bad) else "hang",
            tuple(rank for node in sorted(found.nodes) for rank in _ranks(node, local)),
            tuple(sorted(path for a, b in found.pairs for path in product(_ranks(a, local), _ranks(b, local)))),
        )
    ]  # fmt: skip


def rounds(nodes: int) -> Iterator[list[Pair]]:
    """Rounds in which each node meets another, until all have met; with an odd number one rests."""
    ring: list[int] = [*range(nodes), *([-1] if nodes % 2 else [])]
    half = len(ring) // 2
    for _ in range(len(ring) - 1):
        met = zip(ring[:half], reversed(ring[half:]), strict=True)
        yield [(min(pair), max(pair)) for pair in met if -1 not in pair]
        ring = [ring[0], ring[-1], *ring[1:-1]]


def is_good(times: Mapping[Pair, float | None]) -> dict[Pair, bool]:
    """Which pairs do well: where some do not train at all, those that do.

    Args:
        times: Seconds of an iteration; None: none was done.
    """
    done = [seconds for seconds in times.values() if seconds is not None]
    longest_s = SLOWER * min(done) if done and len(done) == len(times) else float("inf")
    return {pair: seconds is not None and seconds <= longest_s for pair, seconds in times.items()}


def decide(good: Mapping[Pair, bool]) -> Found:
    """Whom it leaves that these pairs do well and those do not."""
    cleared = {node for pair, fine in good.items() if fine for node in pair}
    left = {pair: set(pair) - cleared for pair, fine in good.items() if not fine}
    nodes = frozenset(node for nodes in left.values() if len(nodes) == 1 for node in nodes)
    pairs = frozenset(pair for pair, nodes in left.items() if not nodes)
    # A pair of which nobody is cleared says nothing but that one of them is bad, which a bad node among them explains.
    return Found(nodes, pairs, bool(left) and all(len(n) < len(p) or n & nodes for p, n in left.items()))


def _ranks(node: int, local: int) -> Collection[int]:
    return range(node * local, (node + 1) * local)
