"""Passes over the links of a communicator: every link once, nobody twice at a time, few of them."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.act.passes import Link, Pass, in_use, passes_over, ring


def is_without_overlap(one: Pass) -> bool:
    ends = [end for pair in one for end in pair]
    return len(ends) == len(set(ends))


def covered(passes: list[Pass]) -> list[Link]:
    assert all(is_without_overlap(one) for one in passes)
    return sorted(pair for one in passes for pair in one)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 9, 64, 1023, 1024])
def test_a_ring_is_covered_in_two_or_three_passes(size: int) -> None:
    passes = passes_over(ring(size))
    assert len(passes) == (2 if size % 2 == 0 else 3)
    assert covered(passes) == [(at, (at + 1) % size) for at in range(size)]


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 100, 1023, 1024])
def test_a_tree_is_covered_in_four_passes(size: int) -> None:
    tree = [(at, (at - 1) // 2) for at in range(1, size)]
    passes = passes_over(tree)
    assert len(passes) <= 4
    assert covered(passes) == sorted(tree)


@pytest.mark.parametrize("seed", range(20))
def test_any_links_are_covered_and_overlap_nowhere(seed: int) -> None:
    rng = np.random.default_rng(seed)
    links = list({(int(a), int(b)) for a, b in rng.integers(0, 12, (30, 2)) if a != b})
    assert covered(passes_over(links, most=99)) == sorted(links)
    fewer = passes_over(links, most=3)
    assert len(fewer) == 3
    assert set(covered(fewer)) <= set(links)


@pytest.mark.parametrize("size", [0, 1])
def test_who_is_alone_has_no_links(size: int) -> None:
    assert passes_over(ring(size)) == []


def test_links_in_use_are_those_that_carry_data() -> None:
    # GIVEN ranks 4 to 7, which reduce along a tree; all are connected with all, since the communicator was made
    tree = {(5, 4), (6, 4), (7, 5), (4, 5), (4, 6), (5, 7)}
    carried = {a: {b: 10**9 if (a, b) in tree else 4096 for b in range(4, 8) if a != b} for a in range(4, 8)}
    carried[4][9] = 10**12  # of another communicator
    assert {(src + 4, dst + 4) for src, dst in in_use(carried, (4, 5, 6, 7))} == tree
    # AND WHEN nothing is known of one of them, none is known to be in use
    assert in_use({src: {dst: size for dst, size in to.items() if dst != 7} for src, to in carried.items() if src != 7},
                  (4, 5, 6, 7)) == []  # fmt: skip
    assert in_use({}, (4, 5, 6, 7)) == []
