"""Does one rank lose more than its peers, or does work go from one to the other?"""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.detect.lately import KEPT, LostLately
from whichrank.detect.losses import Before, Losses
from whichrank.model.iterations import Window


def window_of(lost_s: np.ndarray, first: int = 0) -> Window:
    ranks, n = lost_s.shape
    zero = np.zeros(ranks, np.int64)
    return Window(
        np.arange(ranks), np.arange(first, first + n), np.tile(np.arange(n), (ranks, 1)), np.full((ranks, n), 1.0),
        lost_s, zero, np.zeros(ranks, np.bool_), zero.astype(np.uint64), float(n), zero - 1,
    )  # fmt: skip


def moves(turns: str, since: int, ranks: int = 2, lately: LostLately | None = None, first: int = 0) -> bool:
    """Whether the excess of rank 0 may be chance, by who is long in each iteration: `0`, `1`, or `.` nobody."""
    lost_s = np.array([[0.2 if who == str(rank) else 0.0 for who in turns] for rank in range(ranks)])
    lately = lately or LostLately()
    window = window_of(lost_s, first)
    lately.take(window, lost_s)
    return Losses(lost_s, lost_s > 0.1, before=Before(window, lately)).moves(0, since, 0.2)


@pytest.mark.parametrize(
    ("turns", "since", "ranks", "expected"),
    [
        ("....00000", 4, 2, False),  # it is new: nobody was longer before
        ("00000", 0, 2, True),  # of two one is the first by chance
        ("000000000", 0, 2, False),  # but not for so long
        ("0000", 0, 8, False),  # and of eight it is less likely
        ("0110100100000", 8, 2, True),  # they take turns
        ("01101001000000000000000000000", 8, 2, False),
        ("111111000000", 6, 8, False),  # another one was slow, and is no more
    ],
)
def test_a_run_that_may_be_chance_is_no_fault(turns: str, since: int, ranks: int, expected: bool) -> None:
    assert moves(turns, since, ranks) == expected


def test_what_was_before_a_window_counts() -> None:
    # GIVEN a window of long iterations, in which no rank but one was seen longer
    lately = LostLately()
    assert moves("....0000", 4, lately=lately) is False
    assert moves("00000", 0, lately=lately, first=8) is False
    # BUT the same after turns is none
    lately = LostLately()
    moves("01101001", 0, lately=lately)
    assert moves("00000", 0, lately=lately, first=8) is True


def test_iterations_are_remembered_once_and_not_for_ever() -> None:
    lately = LostLately()
    lost_s = np.arange(2 * (KEPT + 10), dtype=np.float64).reshape(2, -1)
    for begin in range(0, KEPT + 5, 5):
        lately.take(window_of(lost_s[:, begin : begin + 10], begin), lost_s[:, begin : begin + 10])
    found = lately.before(np.array([1, 0]), KEPT + 5)
    assert found.shape == (2, KEPT - 5)
    assert found[1].tolist() == lost_s[0, 10 : KEPT + 5].tolist()
    # AND a job whose iterations are counted anew begins anew
    lately.take(window_of(lost_s[:, :3], 0), lost_s[:, :3])
    assert lately.before(np.array([0]), 10).shape == (1, 3)


@pytest.mark.parametrize(
    ("ranks", "in_a_row", "expected"),
    [
        (2, 20, True),  # a million to one against that it is always the same of two
        (2, 19, False),
        (8, 7, True),
        (8, 6, False),
        (1, 60, False),  # nobody to compare with
    ],
)
def test_a_small_excess_that_is_there_each_time_is_no_chance(ranks: int, in_a_row: int, expected: bool) -> None:
    # GIVEN iterations in which nobody was longer, and then always the same rank
    assert oftener("." * 4 + "0" * in_a_row, ranks) is expected


def test_what_is_seldom_missing_counts_and_what_others_have_too_does_not() -> None:
    assert oftener("...." + 4 * "0000000." + "000", 8) is True
    # BUT where another one is longer in the other half of the iterations, it is chance
    assert oftener("01101001" * 7, 2) is False


def oftener(turns: str, ranks: int) -> bool:
    """Whether rank 0 is longer too often for chance: of all iterations a window holds the latest four."""
    lost_s = np.array([[0.2 if who == str(rank) else 0.0 for who in turns] for rank in range(ranks)])
    lately, latest = LostLately(), lost_s[:, -4:]
    lately.take(window_of(lost_s), lost_s)
    window = window_of(latest, lost_s.shape[1] - 4)
    return Losses(latest, latest > 0.1, before=Before(window, lately)).is_oftener(0, 0.2)


def test_without_a_past_nothing_is_said_to_be_oftener() -> None:
    lost_s = np.full((8, 60), 0.0)
    lost_s[0] = 0.2
    assert Losses(lost_s, lost_s > 0.1).is_oftener(0, 0.2) is False
