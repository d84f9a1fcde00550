"""The iteration in a rank's operations, and departures from it that look like a skipped or a repeated operation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank.detect.period import MOST_AHEAD, Sequence, find_period
from whichrank.model.sequence import Tokens


def tokens(text: str) -> Tokens:
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)


def letters(values: tuple[int, ...]) -> str:
    return "".join(map(chr, values))


def fed(text: str, sequence: Sequence | None = None, batch: int = 7) -> Sequence:
    """A sequence that was fed these operations, some at a time."""
    s = sequence or Sequence()
    first = s.last_ordinal + 1
    x = tokens(text)
    for at in range(0, len(x), batch):
        part = x[at : at + batch]
        s.feed(np.arange(first + at, first + at + len(part)), part)
    return s


def edits(s: Sequence) -> list[tuple[int, str, str]]:
    return [(e.ordinal, letters(e.missing), letters(e.extra)) for e in s.edits]


ITERATION = "abbcabbcdddx"


@pytest.mark.parametrize("batch", [1, 7, 40, 100])
def test_the_iteration_is_found_whatever_batches_end_in(batch: int) -> None:
    # GIVEN an iteration with loops inside it, a log line after the tenth, and an operation left out in the next
    usual = "ebebebebgegegegefa"
    s = fed(usual * 10 + "cd" + "ebebebebgegegegfa" + usual * 8, batch=batch)
    assert s.period == len(usual)
    assert edits(s) == [(181, "", "cd"), (198, "e", "")]


def test_where_one_too_many_of_this_may_be_one_too_few_of_that_both_are_reported() -> None:
    assert edits(fed("ab" * 9 + "a" + "ab" * 9)) == [(20, "b", "a")]
    assert edits(fed("abc" * 9 + "a" + "abc" * 9)) == [(29, "", "a")]


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("", 0),
        ("ab", 0),
        ("abab", 0),
        ("ababab", 2),
        ("xyzaaa", 1),
        ("zabcabcabc", 3),
        (ITERATION * 3, 12),
        ("abcdefgh", 0),
    ],
)
def test_three_equal_repetitions_at_the_end_are_a_period(text: str, period: int) -> None:
    assert find_period(tokens(text)) == period


def test_a_shorter_period_may_be_out_of_question() -> None:
    assert find_period(tokens("ababababab" * 2), at_least=3) == 4


@pytest.mark.parametrize("batch", [1, 3, 12, 50, 1000])
def test_the_period_of_nested_loops_is_the_iteration(batch: int) -> None:
    # GIVEN an iteration of four equal microbatches and a tail that is no departure
    iteration = "mmmn" * 4 + "gg" + "o"
    s = fed(iteration * 40, batch=batch)
    # THEN whatever the snapshots caught first, the iteration is found and no edit is left
    assert s.period == len(iteration)
    assert not s.edits


@pytest.mark.parametrize("place", range(len(ITERATION)))
def test_a_skipped_operation_is_one_edit(place: int) -> None:
    # GIVEN twelve iterations, in the ninth one operation is left out
    text = ITERATION * 8 + ITERATION[:place] + ITERATION[place + 1 :] + ITERATION * 3
    s = fed(text)
    # THEN that is the edit: the same token is missing (in a run of equal ones nobody can say which)
    assert [(m, x) for _, m, x in edits(s)] == [(ITERATION[place], "")]
    assert abs(s.edits[0].ordinal - (8 * 12 + place + 1)) <= 2
    assert s.edits[0].period == 12


@pytest.mark.parametrize("place", range(len(ITERATION)))
def test_a_repeated_operation_is_one_edit(place: int) -> None:
    text = ITERATION * 8 + ITERATION[: place + 1] + ITERATION[place:] + ITERATION * 3
    assert [(m, x) for _, m, x in edits(fed(text))] == [("", ITERATION[place])]


def test_the_period_goes_on_after_an_edit() -> None:
    s = fed(ITERATION * 8 + ITERATION[1:] + ITERATION * 6)
    assert s.period == 12
    assert s.explained > 6 * 12
    assert len(s.edits) == 1


def test_nothing_is_claimed_before_a_whole_iteration_was_seen_since() -> None:
    s = fed(ITERATION * 8 + ITERATION[1:9])
    assert not s.edits
    fed(ITERATION[9:] + ITERATION, s)
    assert len(s.edits) == 1


@pytest.mark.parametrize("every", [5, 10, 16])
def test_a_log_operation_every_few_iterations_is_an_extra_edit_at_equal_distances(every: int) -> None:
    # GIVEN iterations with a closing operation, and every few of them one more operation for the log
    s = Sequence(closes=lambda token: token == ord("x"))
    fed((ITERATION * every + "L") * 6 + ITERATION * 3, s)
    # THEN the iteration is not stretched to the log's distance, and every edit is the log's
    assert s.period in (12, 12 * every + 1)
    assert {(m, x) for _, m, x in edits(s)} <= {("", "L")}


def test_a_new_phase_claims_nothing() -> None:
    # GIVEN training, then an evaluation of another pattern, then training
    s = Sequence(closes=lambda token: token == ord("x"))
    fed(ITERATION * 20 + "eeev" * 30 + ITERATION * 20, s)
    # THEN the iteration is known again, without an edit
    assert not s.edits
    assert s.period == 12
    # AND without a closing operation that would tell an iteration from a loop, it is one or several of them
    assert fed(ITERATION * 20 + "eeev" * 30 + ITERATION * 200).period % 12 == 0


def test_feeding_out_of_order_and_twice_makes_no_difference() -> None:
    # GIVEN operations that complete in any order, each reported twice
    x = tokens(ITERATION * 30)
    ordinals = np.arange(1, len(x) + 1)
    rng = np.random.default_rng(3)
    s = Sequence()
    for at in range(0, len(x), 40):
        order = at + rng.permutation(min(40, len(x) - at))
        for half in (order[:25], order[10:]):
            s.feed(ordinals[half], x[half])
    assert np.array_equal(s.tokens, x)
    assert s.period == 12
    assert not s.edits


def test_a_gap_is_waited_for() -> None:
    s = fed(ITERATION * 3)
    s.feed(np.arange(38, 60), tokens((ITERATION * 5)[37:59]))
    assert s.last_ordinal == 36
    s.feed(np.array([37]), tokens("a"))
    assert s.last_ordinal == 59


def test_what_was_lost_is_not_waited_for() -> None:
    # GIVEN operations 37 to 40 were overwritten before anybody read them, and that was reported
    s = fed(ITERATION * 3)
    s.expect_loss()
    # WHEN the next ones come THEN learning starts behind the gap
    later = tokens(ITERATION * 6)
    s.feed(np.arange(41, 41 + len(later)), later)
    assert s.last_ordinal == 40 + len(later)
    assert not s.edits
    assert s.period == 12


def test_a_loss_that_nobody_says_is_noticed_and_holds_no_memory() -> None:
    # GIVEN one operation of a communicator that came and went between two snapshots
    s = fed(ITERATION * 3)
    for first in range(38, 38 + 12 * 400, 12):
        s.feed(np.arange(first, first + 12), tokens(ITERATION))
    # THEN it is given up at last
    assert s.last_ordinal == 37 + 12 * 400
    assert len(s._ahead) < MOST_AHEAD
    assert s.period == 12


def test_a_long_run_keeps_a_bounded_past() -> None:
    s = Sequence(keep=600)
    fed(ITERATION * 500, s, batch=100)
    assert s.last_ordinal == 6000
    assert len(s.tokens) <= 600
    assert s.period == 12
    assert not s.edits
    # AND a departure after all that is found where it is
    fed(ITERATION[1:] + ITERATION * 3, s)
    assert edits(s) == [(6001, "a", "")]


def test_one_batch_larger_than_what_is_kept() -> None:
    s = Sequence(keep=600)
    fed(ITERATION * 200, s, batch=2400)
    assert s.last_ordinal == 2400
    assert len(s.tokens) <= 600


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 200), min_size=10, max_size=800), st.integers(1, 60))
def test_random_operations_never_make_an_edit(values: list[int], batch: int) -> None:
    s = Sequence()
    x = np.random.default_rng(values).integers(0, 50, 1500).astype(np.uint32)
    for at in range(0, len(x), batch):
        s.feed(np.arange(at + 1, at + 1 + len(x[at : at + batch])), x[at : at + batch])
    assert not s.edits
    assert s.last_ordinal == len(x)


def test_iterations_are_counted_by_their_closing_operation() -> None:
    s = Sequence(closes=lambda token: token == ord("x"))
    fed(ITERATION * 9 + "L" + ITERATION * 2 + "ab", s)
    assert s.is_whole
    assert s.iterations() == 11
    # AND a loop inside an iteration is none
    inner = fed("ab" * 9, Sequence(closes=lambda token: token == ord("x")))
    assert inner.period == 2
    assert inner.iterations() is None


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_a_loop_of_one_operation_is_no_iteration_if_something_closes_it(batch: int) -> None:
    # GIVEN layers of one operation each, and a loss at the end THEN they are an iteration, and nothing departed from it
    s = fed(("a" * 16 + "b") * 12, batch=batch)
    assert s.period == 17
    assert edits(s) == []


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_a_schedule_departs_from_its_loop_at_both_ends(batch: int) -> None:
    # GIVEN a middle stage of 1F1B: two forward (`rs`), one backward (`xy`) and forward in turn, two backward
    iteration = "rsrs" + "xyrs" * 6 + "xyxy"
    s = fed(iteration * 12, batch=batch)
    assert s.period == len(iteration)
    assert edits(s) == []
