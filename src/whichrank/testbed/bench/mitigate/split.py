"""How long the best split takes to be found: table 5 of Greyhound."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from whichrank.act.rebalance import balanced

GROUPS: Final = {16: 0.01, 32: 0.01, 64: 0.01, 128: 0.11, 256: 6.78, 512: 35.93, 4096: None, 16384: None}
"""Data-parallel groups, and seconds that the quadratic program of the paper takes; None: it does not say."""
REPEATS: Final = 20
EACH: Final = 32


class SplitResult(msgspec.Struct, frozen=True, kw_only=True):
    """Of so many groups."""

    groups: int
    took_s: tuple[float, ...]
    paper_s: float | None


def time_splits(seed: int = 1) -> list[SplitResult]:
    """Splits among groups of which each takes another time."""
    rng = np.random.default_rng(seed)
    results = []
    for groups, paper_s in GROUPS.items():
        took_s = []
        for _ in range(REPEATS):
            microbatch_s = rng.uniform(1.0, 3.0, groups)
            began_s = time.perf_counter()
            balanced(microbatch_s, EACH * groups)
            took_s.append(time.perf_counter() - began_s)
        results.append(SplitResult(groups=groups, took_s=tuple(took_s), paper_s=paper_s))
    return results


def split_table(results: Sequence[SplitResult]) -> str:
    """A line for each number of groups."""
    lines = ["| groups | n | median | most | paper |", "|---:|---:|---:|---:|---:|"]
    for one in results:
        paper = f"{one.paper_s:g} s" if one.paper_s is not None else "-"
        median, most = np.median(one.took_s), max(one.took_s)
        lines.append(f"| {one.groups:,} | {len(one.took_s)} | {median * 1e3:.2f} ms | {most * 1e3:.2f} ms | {paper} |")
    return "\n".join(lines)
