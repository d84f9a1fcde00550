"""What is expected of a block, and what is anomalous."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.stage.expected import BETTER_AFTER, ExpectedTimes


def after(*times_s: float, alpha: float = 0.05, beta: float = 0.5) -> tuple[float, list[bool]]:
    """What is expected in the end, and which of the times were anomalous."""
    expected = ExpectedTimes(alpha, beta)
    anomalous = [bool(expected.take(np.array([time_s]))[0]) for time_s in times_s]
    return float(expected.expected_s[0]), anomalous


def test_warm_up_counts_for_nothing() -> None:
    assert after(9.0, 1.0) == (1.0, [False, False])


def test_the_example_of_the_module() -> None:
    assert after(0.9, 0.40, 0.41, 0.80, 0.41) == (0.41, [False, False, False, True, False])


def test_between_both_thresholds_nothing_is_learned_and_nothing_said() -> None:
    assert after(1.0, 1.0, 1.3, 1.49) == (1.0, [False] * 4)


def test_slow_drift_is_followed() -> None:
    # GIVEN a block that becomes 4 % slower in each iteration, until it takes seven times as long
    times_s = [1.0, *(1.04**i for i in range(50))]
    # THEN no step is anomalous, and the last one is expected
    expected_s, anomalous = after(*times_s)
    assert expected_s == pytest.approx(times_s[-1])
    assert not any(anomalous)


def test_what_stays_anomalous_is_not_learned() -> None:
    expected_s, anomalous = after(1.0, 1.0, *[2.0] * 200)
    assert expected_s == 1.0
    assert anomalous == [False, False] + [True] * 200


def test_a_lasting_change_for_the_better_is_taken() -> None:
    assert after(1.0, 1.0, *[0.5] * (BETTER_AFTER - 1))[0] == 1.0
    # THEN the longest of the faster times is expected
    assert after(1.0, 1.0, 0.5, 0.52, *[0.5] * (BETTER_AFTER - 2))[0] == 0.52
    # AND the old time is anomalous
    assert after(1.0, 1.0, *[0.5] * BETTER_AFTER, 1.0)[1][-1]


def test_faster_now_and_then_is_no_lasting_change() -> None:
    assert after(1.0, 1.0, *([0.5] * (BETTER_AFTER - 1) + [1.0]) * 10)[0] == 1.0


def test_the_slow_second_iteration_is_forgotten() -> None:
    # GIVEN a pause in the very iteration from which the first expectation is taken
    expected_s, anomalous = after(1.0, 3.0, *[1.0] * BETTER_AFTER, 2.0)
    assert expected_s == 1.0
    assert anomalous[-1]


def test_thresholds_are_parameters() -> None:
    assert after(1.0, 1.0, 1.15, alpha=0.2)[0] == 1.15
    assert after(1.0, 1.0, 1.15, beta=0.1)[1][-1]


def test_each_block_of_each_pipeline_is_by_itself_and_unknown_times_change_nothing() -> None:
    # GIVEN two pipelines of two blocks, of one of which the time is not known at first
    expected = ExpectedTimes()
    expected.take(np.ones((2, 2)))
    expected.take(np.array([[1.0, 2.0], [np.nan, 4.0]]))
    # WHEN one is anomalous, one near, one new and one unknown
    anomalous = expected.take(np.array([[1.6, 2.02], [3.0, np.nan]]))
    # THEN each is judged by itself
    assert anomalous.tolist() == [[True, False], [False, False]]
    np.testing.assert_array_equal(expected.expected_s, [[1.0, 2.02], [3.0, 4.0]])


def test_healthy_noise_is_never_anomalous() -> None:
    rng = np.random.default_rng(0)
    expected = ExpectedTimes()
    found = [expected.take(rng.lognormal(0.0, 0.02, (16, 256))).sum() for _ in range(300)]
    assert sum(found) == 0
    assert expected.expected_s.min() > 0.9
    assert expected.expected_s.max() < 1.1
