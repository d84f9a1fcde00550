"""The table of tokens is bounded, and what is issued again and again is never forgotten."""

from __future__ import annotations

import numpy as np

from whichrank.store.token_table import Meaning, TokenTable


def learn(table: TokenTable, tokens: range | list[int], in_use: list[int] | None = None) -> int:
    """Issue tokens; how many were unknown."""
    listed = list(tokens)
    unknown = table.unknown(listed)
    for place in unknown:
        if table.is_full:
            table.turn(in_use or [])
        table.add(listed[place], Meaning(listed[place] % 3, listed[place] * 10, listed[place] == 7))
    return len(unknown)


def test_what_a_token_means() -> None:
    table = TokenTable()
    assert learn(table, range(10)) == 10
    assert learn(table, range(12)) == 2
    assert (table.group_of(4), table.shape_of(4), table.closes(4)) == (1, 40, False)
    assert table.closes(7)
    assert table.are_of_one(1, 4)
    assert not table.are_of_one(1, 5)
    assert table.of_group(0).tolist() == [0, 3, 6, 9]
    assert table.shapes_of(np.array([3, 99, 5], np.uint32)).tolist() == [30, 99, 50]


def test_an_unknown_token_is_of_no_group_and_of_no_other() -> None:
    table = TokenTable()
    learn(table, [1])
    assert (table.group_of(9), table.shape_of(9), table.closes(9)) == (-1, 9, False)
    assert not table.are_of_one(9, 9)
    assert not table.are_of_one(1, 9)


def test_shapes_that_vary_for_ever_take_bounded_memory_and_forget_nothing_that_recurs() -> None:
    # GIVEN three tokens of each iteration, and some of each that never come again
    table = TokenTable(most=100)
    usual = [1, 2, 7]
    learn(table, usual)
    for iteration in range(2000):
        learn(table, range(1000 + 20 * iteration, 1020 + 20 * iteration))
        assert learn(table, usual) == 0, iteration
        assert len(table._new) + len(table._old) <= 200
    # THEN the old ones are forgotten, the columns too
    assert table.shape_of(1000) == 1000
    assert table.shape_of(2) == 20
    assert table.closes(7)
    assert len(table.of_group(1)) <= 200
    # AND what was issued lately is known
    assert table.shape_of(1000 + 20 * 1999) == 10 * (1000 + 20 * 1999)


def test_what_is_in_use_outlives_generations_though_nobody_asks_for_it() -> None:
    # GIVEN some tokens that are in use, and others that are not, and then many that never come again
    table = TokenTable(most=100)
    learn(table, range(20))
    learn(table, range(1000, 2000), in_use=[1, 2, 7])
    # THEN those in use are known still
    assert [table.shape_of(token) for token in (1, 2, 7, 8)] == [10, 20, 70, 8]
    # AND of more than fit half a generation is kept
    learn(table, range(3000, 5000), in_use=list(range(3000, 5000)))
    assert len(table._new) + len(table._old) <= 200
