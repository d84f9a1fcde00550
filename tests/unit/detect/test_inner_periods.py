"""Iterations inside of a period that has a log too, and layers that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whichrank.detect.inner_periods import may_begin, may_go_on, places_of, root_of

WORLD, DP, TP, MESSAGES = 1, 2, 3, -1


def columns(period: str, groups: dict[str, int], closing: str = "") -> tuple[np.ndarray[Any, Any], ...]:
    shapes = np.array([ord(letter) for letter in period], np.int64)
    of = np.array([groups.get(letter, WORLD) for letter in period], np.int64)
    return shapes, of, np.array([letter in closing for letter in period])


def begin(period: str, groups: dict[str, int], closing: str = "") -> list[str]:
    """The n-grams that may begin a shorter iteration, as words, and behind them those that may begin the period."""
    return [
        " ".join(sorted("".join(map(chr, ngram)) for ngram in some))
        for some in may_begin(*columns(period, groups, closing))
    ]


def inner(period: str, groups: dict[str, int], closing: str = "") -> list[str]:
    """The n-grams that may begin a shorter iteration."""
    return begin(period, groups, closing)[:-1]


@pytest.mark.parametrize(
    ("period", "groups", "closing", "expected"),
    [
        ("ab" * 10 + "x", {}, "", ["a b"]),  # a log in every tenth iteration
        ("x" + "ab" * 10, {}, "", ["a b"]),
        ("abc" * 10 + "c", {}, "", ["a b"]),  # the log is an operation that each iteration has too
        ("aab" * 10 + "b", {}, "", ["aa ab ba"]),  # and none comes once in each
        ("aabb" * 10 + "x", {}, "", ["aa ab bb"]),  # the log hides an `a` behind a `b`
        ("ttttdg" * 10 + "wwww", {"t": TP, "d": DP, "w": 4, "g": 5}, "d", ["d g"]),  # of another communicator
        ("abc", {}, "", []),  # each comes once
        ("abx" + "ab" * 2, {}, "", []),  # every third has something else: that is no log
        ("ttttttttd", {"t": TP, "d": DP}, "d", []),  # layers, and what closes the iteration
        ("t" * 10 + "b", {}, "", ["t"]),  # layers that have one operation each, or iterations
        ("t" * 16 + "b", {}, "", []),  # so many are layers, or microbatches
        ("gstu" * 32 + "m", {}, "", []),
        ("gstu" * 9 + "m", {}, "", []),  # a log in every ninth iteration is not usual
        ("gsd" * 4 + "m", {"d": DP}, "d", ["d g s"]),  # but for where each closes an iteration
        ("sr" + "srqu" * 7 + "qu", dict.fromkeys("srqu", MESSAGES), "", []),  # microbatches of 1F1B
        ("ab" * 10 + "xyzuvw", {}, "", []),  # and much else behind them
        ("srsrsrsrb", {"s": MESSAGES, "r": MESSAGES}, "", []),  # microbatches, and a broadcast
        ("srsra" * 10 + "x", {"s": MESSAGES, "r": MESSAGES}, "", ["a"]),  # a ring, and a log
        ("ab" * 10, {}, "", []),  # of operations that only look alike
    ],
)
def test_iterations_are_told_from_layers(
    period: str, groups: dict[str, int], closing: str, expected: list[str]
) -> None:
    assert inner(period, groups, closing) == expected


def test_what_comes_most_often_comes_first() -> None:
    # GIVEN layers of one communicator, whose iterations have a log now and then: only times can tell
    assert inner("tutututub" * 10 + "x", {}) == ["t u", "b"]


def test_a_few_operations_in_a_row_come_once_where_none_does() -> None:
    # GIVEN FSDP2: layers are gathered forward, and gathered and scattered backward THEN two in a row say where
    assert begin("gggggsgsgss", {}) == ["ss"]
    # GIVEN a stage of a pipeline, with its messages forward and then backward
    assert begin("rsrsrsxyxyxy", dict.fromkeys("rsxy", MESSAGES)) == ["sx yr"]
    # AND too many in a row are none
    assert begin("a" * 20 + "b" * 20, {}) == ["ab ba"]
    assert begin("a" * 20 + "b" + "a" * 21 + "b", {})[-1] == ""


def test_what_began_iterations_may_go_on_when_a_log_has_come() -> None:
    a, b, c = (ord(letter) for letter in "abc")
    assert may_go_on((a,), *columns("abc", {}))
    assert may_go_on((a,), *columns("abc" * 10 + "c", {}))
    assert may_go_on((b, c), *columns("abc" * 10 + "c", {}))
    assert not may_go_on((c,), *columns("abc" * 10 + "c", {}))
    # AND the log may be of another communicator
    assert may_go_on((b,), *columns("abc" * 10 + "x", {"x": DP}))
    # WHEN the log hides one of ten THEN not
    assert not may_go_on((b, c), *columns("abc" * 9 + "abxc", {}))


def test_where_operations_in_a_row_end() -> None:
    shapes = columns("abcabd", {})[0]
    assert places_of(tuple(map(ord, "ab")), shapes).tolist() == [1, 4]
    assert places_of(tuple(map(ord, "dab")), shapes).tolist() == [1]
    assert places_of(tuple(map(ord, "x")), shapes).tolist() == []


def test_a_period_of_several_repetitions_is_one_of_them() -> None:
    tokens = np.array([1, 2, 1, 2, 1, 2], np.uint32)
    assert root_of(tokens).tolist() == [1, 2]
    assert root_of(tokens[:5]).tolist() == [1, 2, 1, 2, 1]
    assert root_of(tokens[:1]).tolist() == [1]
