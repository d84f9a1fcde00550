"""Which operations a rank may have waited in, of those that have ended."""

from __future__ import annotations

import numpy as np

from whichrank.store.long_ops import APART_S, KEPT, LongOps


def added(*rows: tuple[int, float, float]) -> LongOps:
    ops = LongOps()
    add(ops, *rows)
    return ops


def add(ops: LongOps, *rows: tuple[int, float, float]) -> None:
    rank, issued_s, ended_s = (np.array(column) for column in zip(*rows, strict=True))
    ops.add(rank.astype(np.int64), issued_s.astype(float), ended_s.astype(float))


def test_a_long_operation_is_found_where_it_was_and_a_short_one_nowhere() -> None:
    ops = added((3, 10.0, 15.0), (2, 10.0, 10.1))
    assert ops.within(3, 12.0, 13.0)
    assert ops.within(3, 15.0 + APART_S / 2, 20.0)
    assert not ops.within(3, 17.0, 20.0)
    assert not ops.within(3, 1.0, 8.0)
    assert not ops.within(2, 9.0, 11.0)
    assert not ops.within(0, 9.0, 11.0)
    assert not ops.within(99, 9.0, 11.0)


def test_the_latest_ones_are_kept_over_batches() -> None:
    ops = added(*[(0, 10.0 * n, 10.0 * n + 5) for n in range(10)])
    kept = [n for n in range(10) if ops.within(0, 10.0 * n + 2, 10.0 * n + 3)]
    assert kept == list(range(10 - KEPT, 10))
    add(ops, (0, 100.0, 105.0), (1, 100.0, 105.0))
    kept = [n for n in range(11) if ops.within(0, 10.0 * n + 2, 10.0 * n + 3)]
    assert kept == list(range(11 - KEPT, 11))
    assert ops.latest_s([0, 1, 99]).tolist() == [105.0, 105.0, 0.0]
    ops.forget(0)
    assert not ops.within(0, 0.0, 200.0)
    assert ops.within(1, 102.0, 103.0)
