"""Whom a process meets that makes a communicator."""

from __future__ import annotations

from typing import Any

import pytest

from whichrank.sensors.meetings import Members, members_met


@pytest.mark.parametrize(
    ("given", "met"),
    [
        ((8, 0, [], "default_pg", "0"), Members(0, 1, 8)),
        ((8, 0, [], "default_pg", None), Members(0, 1, 8)),
        ((8, 0, [], "default_pg", "4"), Members(0, 1, 0)),  # numbered anew
        ((8, 0, [], None, "0"), Members(0, 1, 0)),  # of a program's own, with ranks of another job
        ((4, 1, [4, 5, 6, 7]), Members(4, 1, 4)),
        ((3, 2, [9, 1, 5]), Members(1, 4, 3)),
        ((1, 0, [6]), Members(6, 1, 1)),
        ((3, 0, [0, 1, 3]), Members(0, 1, 0)),
        ((2, 0, [3, 3]), Members(0, 1, 0)),
        ((2, 0, [-1, 0]), Members(0, 1, 0)),
        ((2, 0, None), Members(0, 1, 0)),
        ((4, None, [4, 5, 6, 7]), None),
        ((4, -1, [4, 5, 6, 7]), None),
    ],
)
def test_members(given: tuple[Any, ...], met: Members | None) -> None:
    assert members_met(*given, *("", "0")[len(given) - 3 :]) == met
