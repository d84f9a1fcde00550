"""Rows of many fields, taken and joined without a copy where none is needed."""

from __future__ import annotations

import numpy as np

from whichrank.model.iterations import OP
from whichrank.model.places import joined, those


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
