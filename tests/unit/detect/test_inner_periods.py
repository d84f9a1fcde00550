"""Iterations inside of a period that has a log too, and layers that are none."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.detect.inner_periods import inner_periods

WORLD, DP, TP, MESSAGES = 1, 2, 3, -1


def inner(period: str, groups: dict[str, int], closing: str = "") -> list[str]:
    """The operations that may begin a shorter iteration, as letters."""
    shapes = np.array([ord(letter) for letter in period], np.int64)
    of = np.array([groups.get(letter, WORLD) for letter in period], np.int64)
    closes = np.array([letter in closing for letter in period])
    return ["".join(sorted(map(chr, some))) for some in inner_periods(shapes, of, closes)]


@pytest.mark.parametrize(
    ("period", "groups", "closing", "expected"),
    [
        ("ab" * 10 + "x", {}, "", ["ab"]),  # a log in every tenth iteration
        ("x" + "ab" * 10, {}, "", ["ab"]),
        ("abc" * 10 + "c", {}, "", ["ab"]),  # the log is an operation that each iteration has too
        ("ttttdg" * 10 + "wwww", {"t": TP, "d": DP, "w": 4, "g": 5}, "d", ["dg"]),  # of another communicator
        ("abc", {}, "", []),  # each comes once
        ("abx" + "ab" * 2, {}, "", []),  # every third has something else: that is no log
        ("ttttttttd", {"t": TP, "d": DP}, "d", []),  # layers, and what closes the iteration
        ("t" * 16 + "b", {}, "", []),  # layers that have one operation each
        ("ab" * 10 + "xyzuvw", {}, "", []),  # and much else behind them
        ("srsrsrsrb", {"s": MESSAGES, "r": MESSAGES}, "", []),  # microbatches, and a broadcast
        ("srsra" * 10 + "x", {"s": MESSAGES, "r": MESSAGES}, "", ["a"]),  # a ring, and a log
    ],
)
def test_iterations_are_told_from_layers(
    period: str, groups: dict[str, int], closing: str, expected: list[str]
) -> None:
    assert inner(period, groups, closing) == expected


def test_what_comes_most_often_comes_first() -> None:
    # GIVEN layers of one communicator, whose iterations have a log now and then: only times can tell
    assert inner("tutututub" * 10 + "x", {}) == ["tu", "b"]
