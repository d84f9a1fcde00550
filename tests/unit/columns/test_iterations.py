"""Operations of iterations, found and added up: as plain Python does it, operation by operation."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whichrank.columns.iterations import find_iterations, sum_iterations
from whichrank.model.kinds import Kind

SEEDS = st.integers(0, 2**32 - 1)
MASK = (1 << 64) - 1
FROM_HERE = 1 << 15


@given(SEEDS, st.integers(0, 60))
def test_operations_are_found_in_the_iteration_that_had_begun_and_was_not_over(seed: int, n: int) -> None:
    # GIVEN iterations of some ranks, one after the other, some of them without operations
    rng = np.random.default_rng(seed)
    of_rank = np.sort(rng.integers(0, 5, rng.integers(0, 12)))
    issued = {rank: rng.integers(0, 9) for rank in range(5)}
    begin, end = np.zeros((2, len(of_rank)), np.int64)
    for at, rank in enumerate(of_rank.tolist()):
        begin[at] = issued[rank]
        end[at] = issued[rank] = begin[at] + rng.integers(0, 6)
    # WHEN operations of these and other ranks are looked for, in any order
    rank, ordinal = rng.integers(-1, 7, n), rng.integers(0, 30, n).astype(np.uint32)
    if seed % 2:
        rank = np.sort(rank)
    found = find_iterations(rank, ordinal, of_rank, begin, end)
    # THEN each is in the one that was under way when it was issued
    for r, number, of in zip(rank.tolist(), ordinal.tolist(), found.tolist(), strict=True):
        inside = np.flatnonzero((of_rank == r) & (begin < number) & (number <= end)).tolist()
        assert [of] == (inside or [-1])


def mixed(a: int, b: int) -> int:
    h = ((a ^ b) * 0x9E3779B97F4A7C15) & MASK
    return h ^ h >> 29


@given(SEEDS, st.integers(0, 60))
def test_operations_of_an_iteration_are_added_up(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    sort = rng.integers(0, 1 << 63, 3).astype(np.uint64)
    ops = {
        "rank": rng.integers(0, 3, n), "comm": rng.integers(0, 3, n), "peer": rng.integers(-1, 3, n).astype(np.int32),
        "stage": rng.integers(0, 4, n).astype(np.uint16), "offset": rng.integers(0, 3, n).astype(np.uint16),
        "kind": rng.choice([Kind.ALL_REDUCE, Kind.BROADCAST, Kind.SEND, Kind.RECV], n).astype(np.uint8),
    }  # fmt: skip
    of = rng.integers(-1, 4, n)
    sums = sum_iterations(of, 4, sort, **ops)
    expected = np.zeros((5, 4), object)
    addressed = 0
    for i in np.flatnonzero(of >= 0).tolist():
        rank, comm, peer, stage, offset, kind = (int(column[i]) for column in ops.values())
        what = turned = mixed(int(sort[comm]), kind << 16 | stage)
        is_message = kind >= Kind.SEND
        if is_message and offset:
            turned = mixed(int(sort[comm]), kind << 16 | FROM_HERE | offset)
        has_peer = is_message and peer >= 0
        addressed += has_peer
        root, talk = what if not is_message and peer == rank else 0, mixed(peer, 1) if has_peer else 0
        expected[:, of[i]] += np.array([int(is_message), what, turned, root, talk], object)
    found = (sums.messages, sums.pattern, sums.turned, sums.roots, sums.talks)
    assert [column.tolist() for column in found] == (expected & MASK).tolist()
    assert sums.addressed == addressed
