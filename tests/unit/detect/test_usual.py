"""Usual waits: percentiles by communicator, soon enough and not too soon."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.detect.usual import BINS, LEAST, MEMORY, UsualWaits

MS = 1000


def fed(waits_us: list[int], comm: int = 0) -> UsualWaits:
    usual = UsualWaits()
    usual.add(np.full(len(waits_us), comm), np.array(waits_us, np.uint32))
    return usual


def test_a_few_waits_say_nothing() -> None:
    assert fed([5 * MS] * (LEAST - 1)).p99_s(0) == 0
    assert fed([]).p99_s(0) == fed([1] * 200).p99_s(7) == fed([1] * 200).p99_s(-1) == 0


@pytest.mark.parametrize("usual_us", [1, 300, 20 * MS, 4_000 * MS])
def test_the_percentile_is_right_within_one_bin(usual_us: int) -> None:
    assert usual_us <= 1e6 * fed([usual_us] * 200, comm=3).p99_s(3) <= 2 * (usual_us + 1)


def test_one_wait_in_a_thousand_does_not_matter_one_in_fifty_does() -> None:
    assert fed([MS] * 999 + [60_000 * MS]).p99_s(0) < 0.01
    assert fed(([MS] * 49 + [5_000 * MS]) * 20).p99_s(0) > 5


def test_what_was_usual_long_ago_is_forgotten() -> None:
    # GIVEN slow waits, and then many quick ones
    usual = fed([5_000 * MS] * 1000)
    for _ in range(20):
        usual.add(np.zeros(MEMORY // 2, np.int64), np.full(MEMORY // 2, MS, np.uint32))

    assert usual.p99_s(0) < 0.01


def test_the_longest_wait_that_the_ring_can_hold_has_a_bin() -> None:
    usual = fed([2**32 - 1] * 200)

    assert usual.p99_s(0) == pytest.approx(2 ** (BINS / 2) / 1e6)
