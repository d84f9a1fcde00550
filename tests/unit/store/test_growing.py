"""A column that grows at its end."""

from __future__ import annotations

import numpy as np

from whichrank.store.growing import Growing


def test_values_and_zeros_are_added_and_nothing_before_them_moves() -> None:
    column = Growing(np.int64)
    expected: list[int] = []
    for n in range(60):
        assert column.append(np.arange(n)).tolist() == [*expected, *range(n)]
        column.rows[-1:] = 7
        expected = column.append(n % 3).tolist()
    assert column.rows.tolist() == expected
    assert expected[-2:] == [0, 0]


def test_room_that_was_used_before_is_zero_again() -> None:
    column = Growing(np.uint32)
    column.append(np.full(10, 9))
    assert column.append(6).tolist() == [9] * 10 + [0] * 6
