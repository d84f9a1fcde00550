"""Where a rank departs from its own past."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank.locate.departures import Departures, _departures, departures, expected
from whichrank.model.sequence import Tokens

ITERATION = "abbcabbcdddx"
ELSEWHERE = str.maketrans("abcdxy", "796842")


def tokens(text: str) -> Tokens:
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)


def said(text: str) -> set[str] | None:
    found = departures(tokens(text))
    return None if found is None else {chr(a) + chr(b) for a, b in found.own}


@pytest.mark.parametrize(
    ("past", "then"), [(ITERATION * 4, "a"), (ITERATION * 4 + "a", "b"), (ITERATION * 4 + "abb", "c")]
)
def test_what_follows_the_longest_context_is_expected(past: str, then: str) -> None:
    allowed, length = expected(tokens(past))
    assert {chr(t) for t in allowed} == {then}
    assert length > 1


def test_a_rare_event_is_one_of_several_continuations() -> None:
    # GIVEN a log operation after every eighth iteration, further apart than what is matched
    allowed, _ = expected(tokens((ITERATION * 8 + "L") * 3 + ITERATION * 8))
    # THEN both it and the next iteration may follow
    assert {chr(t) for t in allowed} == {"a", "L"}


@pytest.mark.parametrize("past", ["", "a", "ab", "abc", "aab"])
def test_a_short_past_says_nothing(past: str) -> None:
    assert expected(tokens(past)) == (frozenset(), 0)
    assert said(past) is None


def test_a_faithful_rank_departs_nowhere() -> None:
    assert said(ITERATION * 10) == set()


@pytest.mark.parametrize(
    ("last", "departure"),
    [
        (ITERATION[:4] + ITERATION[5:6], "cb"),  # the first of the second microbatch is left out
        (ITERATION[:4] + "y", "cy"),  # another operation
        (ITERATION[:4] + "cab", "cc"),  # repeated
    ],
)
def test_what_its_past_never_did_is_a_departure(last: str, departure: str) -> None:
    found = said(ITERATION * 10 + last)
    assert found is not None
    assert departure in found


def test_what_was_new_to_a_young_past_and_comes_again_is_the_program() -> None:
    # GIVEN microbatches before the first gradient reduction: its past knew the loop only
    assert said("abc" * 5 + "d") == {"cd"}
    # WHEN the second iteration ends as the first did, there is nothing to say
    assert said(("abc" * 5 + "d") * 2) == set()


def test_only_the_latest_operations_are_read() -> None:
    assert said(ITERATION * 10 + "y" + ITERATION * 60) == set()


def test_ranks_that_did_the_same_elsewhere_are_answered_by_one_pass() -> None:
    # GIVEN two ranks that did the same on communicators of their own, and one that went another way at the end
    one, other, another = ITERATION * 20 + "y", (ITERATION * 20 + "y").translate(ELSEWHERE), ITERATION * 20 + "b"
    _departures.cache_clear()
    # THEN each departure is said in the rank's own tokens
    assert said(one) == {"xy"}
    assert said(other) == {"42"}
    assert said(another) == {"xb"}
    assert (_departures.cache_info().misses, _departures.cache_info().hits) == (2, 1)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from("abbcx"), max_size=120), st.integers(1, 5), st.integers(1, 4), st.integers(1, 120))
def test_all_at_once_says_the_same_as_one_by_one(values: list[str], context: int, support: int, window: int) -> None:
    # GIVEN any operations
    x = tokens("".join(values))
    # WHEN each of the latest is asked for by itself
    own, ever = set(), set()
    asked = 0
    for end in range(max(1, len(x) - window), len(x)):
        allowed, length = expected(x[:end], context, support)
        asked += length > 0
        pattern = x[end - length : end + 1].tolist()
        later = range(end + 1, len(x))
        comes_again = any(x[at - length : at + 1].tolist() == pattern for at in later)
        if length and int(x[end]) not in allowed:
            ever.add((int(x[end - 1]), int(x[end])))
            own |= set() if comes_again else {(int(x[end - 1]), int(x[end]))}
    # THEN that is what all at once says
    found = departures(x, window, context=context, support=support)
    assert found == (Departures(frozenset(own), frozenset(ever)) if asked else None)
