"""With what iterations begin, by what a rank issued and when."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whichrank.detect.beginnings import Beginning, Learning
from whichrank.detect.inner_periods import may_begin

S = 1_000_000_000


def learn(
    issued: str, pause_s: Sequence[float], period: str, loops: int = 1, lost: slice = slice(0), closes: str = ""
) -> tuple[str, int, int] | None:
    """What was found out of operations, of which those of `pause_s` come with these pauses again and again."""
    shapes = np.array([ord(letter) for letter in period], np.int64)
    closing = np.array([letter in closes for letter in period])
    ngrams = may_begin(shapes, np.ones(len(period), np.int64), closing)
    tokens = np.array([ord(letter) for letter in issued], np.uint32)
    learning = Learning(
        3, ngrams, {ord(letter): ord(letter) for letter in period}, bool(closing.any()), len(period), loops
    )
    at_ns = (np.cumsum(np.resize(pause_s, len(issued))) * S).astype(np.int64)
    numbers = np.arange(1, len(issued) + 1)
    kept = np.delete(np.arange(len(issued)), lost)
    middle = len(kept) // 2
    # Operations are not completed in the order of issue.
    assert not learning.look(tokens[:0], numbers[:0], numbers[:0], at_ns[:0])
    for part in (kept[middle:], kept[:middle]):
        learning.look(tokens[part], numbers[part], numbers[part], at_ns[part])
    found = learning.beginning()
    return found and ("".join(map(chr, found.ngram)), found.every, found.phase)


def test_the_longest_pause_decides() -> None:
    assert learn("abc" * 20, (0.1, 0.3, 0.1), "abc") == ("b", 1, 0)
    assert learn("abc" * 20, (0.1, 0.1, 0.2), "abc") == ("c", 1, 0)


def test_among_operations_in_a_row_too() -> None:
    # GIVEN layers that are gathered forward, and gathered and scattered backward
    period = "gggsgsgs"
    # THEN iterations begin where the rank computes, with the second layer or with the first one
    assert learn(period * 20, (0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1), period) == ("ggg", 1, 0)
    assert learn(period * 20, (0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1), period) == ("sgg", 1, 0)


def test_operations_that_were_lost_are_no_pause() -> None:
    assert learn("abc" * 20, (0.1, 0.3, 0.1), "abc", lost=slice(7, 9)) == ("b", 1, 0)


def test_what_was_mostly_something_else_says_nothing() -> None:
    # GIVEN that the rank has gone on to another phase after few iterations
    assert learn("abc" * 5 + "abd" * 20, (0.1, 0.3, 0.1), "abc") is None
    assert learn("a" * 20 + "b" * 20, (0.1,), "a") is None


def test_a_log_now_and_then_is_no_iteration() -> None:
    period = "aab" * 10 + "x"
    assert learn(period * 4, (0.1,), period) == ("b", 1, 0)
    # WHEN the parts are not even THEN they are layers
    uneven = ((0.1,) * 3 + (0.2,) * 3) * 5 + (0.1,)
    assert learn(period * 4, uneven, period) == ("x", 1, 0)
    # AND buckets of which each closes an iteration may be less even
    assert learn(period * 4, uneven, period, closes="b") == ("b", 1, 0)


def test_single_operations_are_iterations_only_if_they_are_seldom_and_even() -> None:
    period = "a" * 10 + "x"
    assert learn(period * 4, (0.1,), period) == ("a", 1, 0)
    assert learn(period * 40, (0.01,), period) == ("x", 1, 0)
    assert learn(period * 4, (0.1,) * 5 + (0.13,) * 5 + (0.1,), period) == ("x", 1, 0)


def test_other_ranks_say_how_often_a_loop_goes_round() -> None:
    # GIVEN microbatches of the last stage of a pipeline, of which an iteration has four
    issued, pause_s = "rs" * 80, (0.1, 0.1, 0.1, 0.1, 0.1, 0.3, 0.1, 0.1)
    # THEN it begins with that before which the rank has paused longest; operations are numbered together here
    assert learn(issued, pause_s, "rs", loops=4) == ("s", 8, 6)
    assert learn(issued, (0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1), "rs", loops=4) == ("r", 8, 3)
    assert learn(issued, pause_s, "rs") == ("r", 1, 0)


def test_ranks_that_begin_alike_have_the_same_sort() -> None:
    one = Beginning((1, 2))
    assert one.sort == Beginning((1, 2)).sort
    assert len({one.sort, Beginning((2, 1)).sort, Beginning((1, 2), every=4).sort}) == 3
