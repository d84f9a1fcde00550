"""The table of tokens is bounded, and what is issued again and again is never forgotten."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from whichrank.model.sequence import Tokens
from whichrank.store.token_table import MEANING, TokenTable


def tokens(listed: Iterable[int]) -> Tokens:
    return np.array(list(listed), np.uint32)


def learn(table: TokenTable, listed: Iterable[int], in_use: Iterable[int] = ()) -> int:
    """Issue tokens; how many were unknown."""
    issued = tokens(listed)
    unknown = table.unknown(issued)
    meanings = np.zeros(len(unknown), MEANING)
    of = issued[unknown].astype(np.int64)
    meanings["group"], meanings["shape"], meanings["closes"] = of % 3, of * 10, of == 7
    table.add(issued[unknown], meanings, lambda: tokens(in_use))
    return len(unknown)


def test_what_a_token_means() -> None:
    table = TokenTable()
    assert learn(table, range(10)) == 10
    assert learn(table, [11, 3, 10, 4]) == 2
    assert (table.group_of(4), table.shape_of(4)) == (1, 40)
    assert table.groups_of(tokens([4, 99, 5])).tolist() == [1, -1, 2]
    assert table.close(tokens([6, 7, 99])).tolist() == [False, True, False]
    assert table.are_of_one(tokens([1, 2, 10, 99]), 4).tolist() == [True, False, True, False]
    assert table.of_group(0).tolist() == [0, 3, 6, 9]
    assert table.shapes_of(tokens([3, 99, 5])).tolist() == [30, 99, 50]


@pytest.mark.parametrize("known", [[], [1]])
def test_an_unknown_token_is_of_no_group_and_of_no_other(known: list[int]) -> None:
    table = TokenTable()
    learn(table, known)
    assert (table.group_of(9), table.shape_of(9)) == (-1, 9)
    assert not table.close(tokens([9])).any()
    assert not table.are_of_one(tokens([9, 1]), 9).any()
    assert not len(table.of_group(9))


def test_shapes_that_vary_for_ever_take_bounded_memory_and_forget_nothing_that_recurs() -> None:
    # GIVEN three tokens of each iteration, and some of each that never come again
    table = TokenTable(most=100)
    usual = [1, 2, 7]
    learn(table, usual)
    for iteration in range(2000):
        learn(table, range(1000 + 20 * iteration, 1020 + 20 * iteration))
        assert learn(table, usual) == 0, iteration
        assert len(table) <= 200
    # THEN the old ones are forgotten
    assert table.shape_of(1000) == 1000
    assert table.shape_of(2) == 20
    assert table.close(tokens([7])).all()
    # AND what was issued lately is known
    assert table.shape_of(1000 + 20 * 1999) == 10 * (1000 + 20 * 1999)


def test_what_is_in_use_outlives_generations_though_nobody_asks_for_it() -> None:
    # GIVEN some tokens that are in use, and others that are not, and then many that never come again
    table = TokenTable(most=100)
    learn(table, range(20))
    for begin in range(1000, 2000, 30):
        learn(table, range(begin, begin + 30), in_use=[1, 2, 7])
    # THEN those in use are known still
    assert [table.shape_of(token) for token in (1, 2, 7, 8)] == [10, 20, 70, 8]
    # AND of more than fit half a generation is kept, also where more come at once than a generation has
    learn(table, range(3000, 5000), in_use=range(3000, 5000))
    assert len(table) <= 200
    assert table.shape_of(4999) == 49990


@pytest.mark.parametrize("seed", range(4))
def test_as_a_dictionary_that_forgets_in_two_generations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, new, old = TokenTable(most=50), set[int](), set[int]()
    for _ in range(400):
        issued = rng.permutation(rng.integers(0, 300))[: rng.integers(0, 40)].tolist()
        unknown = [token for token in issued if token not in new | old]
        assert learn(table, issued) == len(unknown)
        new |= old & set(issued)
        for begin in range(0, len(unknown), 25):
            if len(new) + len(unknown[begin : begin + 25]) > 50:
                old, new = new, set()
            new |= set(unknown[begin : begin + 25])
        old -= new
        probed = tokens(range(300))
        known = [token in new | old for token in range(300)]
        assert (table.shapes_of(probed) != probed)[1:].tolist() == known[1:]


def test_with_whom_messages_are_exchanged() -> None:
    table = TokenTable(most=50)
    meanings = np.zeros(3, MEANING)
    meanings["comm"], meanings["peer"] = (70, 70, 80), (2, -1, 0)
    table.add(tokens([4, 5, 6]), meanings, lambda: tokens([]))
    learn(table, range(100, 150), in_use=[4, 6])
    comms, places = table.peers_of(tokens([6, 4, 99]))
    assert comms.tolist() == [80, 70, -1]
    assert places.tolist() == [0, 2, -1]
