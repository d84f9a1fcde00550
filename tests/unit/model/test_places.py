"""Rows of many fields, taken and joined without a copy where none is needed."""

from __future__ import annotations

import numpy as np

from whichrank.model.iterations import OP
from whichrank.model.places import joined, put, taken, those


def ops(*counters: int) -> np.ndarray:
    rows = np.zeros(len(counters), OP)
    rows["counter"], rows["count"] = counters, 1 << 40
    return rows


def test_rows_are_joined_in_order_into_an_array_of_their_own() -> None:
    # GIVEN parts, one of them empty and one with gaps between its rows
    parts = [ops(1, 2), ops(), ops(3, 9, 4, 9)[::2]]
    rows = joined(parts, OP)
    assert np.array_equal(rows, np.concatenate(parts))
    # WHEN it is changed THEN the parts are not
    rows["counter"] = 0
    assert parts[0]["counter"].tolist() == [1, 2]
    assert joined([], OP).shape == (0,)


def test_the_same_array_is_given_where_all_rows_are_wanted() -> None:
    rows = ops(1, 2, 3)
    assert those(rows, rows["counter"] > 0) is rows
    assert those(rows, rows["counter"] > 1)["counter"].tolist() == [2, 3]


def test_some_rows_are_taken_and_set_with_all_their_fields() -> None:
    # GIVEN rows that are not next to each other
    rows = ops(1, 2, 3, 4)[::-1]

    # WHEN some are taken THEN by places and by a mask, as copies
    assert np.array_equal(taken(rows, np.array([3, 0])), rows[[3, 0]])
    some = taken(rows, rows["counter"] > 2)
    assert np.array_equal(some, rows[:2])
    some["counter"] = 0
    assert rows["counter"].tolist() == [4, 3, 2, 1]

    # WHEN some are set THEN of one place twice the later one stays, and one row is set everywhere
    put(rows, np.array([1, 0, 1]), ops(7, 8, 9))
    assert rows["counter"].tolist() == [8, 9, 2, 1]
    put(rows, np.array([2, 3]), ops(5))
    assert rows["counter"].tolist() == [8, 9, 5, 5]


def test_rows_of_a_table_are_set_by_both_places() -> None:
    table = np.zeros((2, 3), OP)
    put(table, (np.array([0, 1]), np.array([2, 0])), ops(1, 2))
    assert table["counter"].tolist() == [[0, 0, 1], [2, 0, 0]]
