"""Passes over the links of a communicator: every link once, nobody twice at a time, few of them."""

from __future__ import annotations

import pytest

from whichrank.act.passes import Pass, ring_passes, tree_passes


def is_without_overlap(one: Pass) -> bool:
    ends = [end for pair in one for end in pair]
    return len(ends) == len(set(ends))


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 9, 64, 1023, 1024])
def test_a_ring_is_covered_in_two_or_three_passes(size: int) -> None:
    passes = ring_passes(size)
    assert len(passes) == (2 if size % 2 == 0 else 3)
    assert all(is_without_overlap(one) for one in passes)
    links = [pair for one in passes for pair in one]
    assert sorted(links) == [(at, (at + 1) % size) for at in range(size)]


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 100, 1023, 1024])
def test_a_tree_is_covered_in_four_passes(size: int) -> None:
    passes = tree_passes(size)
    assert len(passes) <= 4
    assert all(is_without_overlap(one) for one in passes)
    links = [pair for one in passes for pair in one]
    assert sorted(links) == [(at, (at - 1) // 2) for at in range(1, size)]


@pytest.mark.parametrize("size", [0, 1])
def test_who_is_alone_has_no_links(size: int) -> None:
    assert ring_passes(size) == tree_passes(size) == []
