"""Statistics of paired measurements: what does it cost more with than without, and how sure is that?

What the machine does besides changes within minutes, so a block with and a block without are measured right after one
another, in random order, and only pairs are compared. The estimate is the ratio of the sums, since the mean of the
ratios is too large by the square of the noise. It is a ratio of means and not of medians: an agent that wakes twice a
second falls into few steps, and a median would not see it.

The upper bound is the 95th percentile of a bootstrap over pairs (Efron, Tibshirani: An Introduction to the Bootstrap,
1993, chapter 13), widened by sqrt(n / (n - 1)), by which resampling makes small samples look too sure of themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

RESAMPLES: Final = 10_000
UPPER: Final = 0.95
FEWEST: Final = 2
_CHUNK: Final = 1_000


@dataclass(frozen=True, slots=True)
class Paired:
    """The relative cost of a thing, from pairs of blocks; all shares are of the mean block without it.

    Attributes:
        n: How many pairs.
        base: Mean of the blocks without, in their unit.
        mean: Relative cost, 0.001 is one in a thousand.
        upper: One-sided upper 95 % bound of the mean.
        low: First quartile of the pairs.
        median: Their median.
        high: Their third quartile.
        spread: Their standard deviation.
        resolution: What a cost must at least be to be told from none, at 95 % one-sided.
        shares: The relative cost in each pair, in order.
    """

    n: int
    base: float
    mean: float
    upper: float
    low: float
    median: float
    high: float
    spread: float
    resolution: float
    shares: tuple[float, ...] = ()

    def pairs_for(self, share: float) -> int:
        """How many pairs would resolve a relative cost of `share` with this spread."""
        return int(np.ceil((NormalDist().inv_cdf(UPPER) * self.spread / share) ** 2))


def paired(without: Sequence[float], with_it: Sequence[float], seed: int = 0) -> Paired:
    """The relative cost of `with_it` over `without`, pair by pair.

    Args:
        without: One figure per pair, in any unit.
        with_it: The same with what is measured.
        seed: Of the bootstrap, so that the same figures give the same bound.

    Raises:
        ValueError: There are fewer than two pairs, or they do not match.
    """
    if len(without) != len(with_it) or len(without) < FEWEST:
        raise ValueError(f"{len(without)} and {len(with_it)} figures make no {FEWEST} pairs")
    off, on = np.asarray(without, float), np.asarray(with_it, float)
    n, base = len(off), float(off.mean())
    mean = float(on.mean()) / base - 1.0
    shares = (on - off) / base
    low, median, high = (float(q) for q in np.quantile(shares, (0.25, 0.5, 0.75)))
    spread = float(shares.std(ddof=1))
    resolution = NormalDist().inv_cdf(UPPER) * spread / n**0.5
    widened = (_resampled(off, on, seed) - mean) * (n / (n - 1)) ** 0.5
    upper = mean + float(np.quantile(widened, UPPER))
    return Paired(n, base, mean, upper, low, median, high, spread, resolution, tuple(shares.tolist()))


def _resampled(off: np.ndarray, on: np.ndarray, seed: int) -> np.ndarray:
    """The relative cost in each resample of the pairs."""
    generator = np.random.default_rng(seed)
    costs = []
    for _ in range(RESAMPLES // _CHUNK):
        drawn = generator.integers(0, len(off), (_CHUNK, len(off)))
        costs.append(on[drawn].sum(axis=1) / off[drawn].sum(axis=1) - 1.0)
    return np.concatenate(costs)
