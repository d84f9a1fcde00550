"""What counts as found, missed and false, and the sums of it."""

from __future__ import annotations

from whichrank.testbed.bench.fail_slow.methods import Report
from whichrank.testbed.bench.fail_slow.score import EARLY, WITHIN, Found, Score, found_in, score
from whichrank.testbed.bench.fail_slow.series import Series


def series(changes: list[int], begins: list[int] | None = None) -> Series:
    return Series("one", "step", [1.0] * 200, changes, begins=begins or [])


def at(*seen: int) -> list[Report]:
    return [Report(one, one) for one in seen]


def test_a_change_is_found_by_a_report_with_one_of_the_values_that_follow_it() -> None:
    found = found_in(series([100]), at(102), "cusum")
    assert found == Found(has_changes=True, missed=0, false=0, delays=(3,))
    assert found_in(series([100]), at(100 + WITHIN - 1), "cusum").is_right
    assert found_in(series([100]), at(100 + WITHIN), "cusum") == Found(True, 1, 1, ())


def test_a_report_before_the_change_is_false_and_the_offline_method_may_be_a_little_early() -> None:
    assert found_in(series([100]), at(99), "cusum") == Found(True, 1, 1, ())
    assert found_in(series([100]), at(100 - EARLY), "pelt").is_right
    assert found_in(series([100]), at(100 - EARLY - 1), "pelt") == Found(True, 1, 1, ())


def test_two_reports_of_one_change_are_no_false_ones() -> None:
    assert found_in(series([100]), at(102, 110), "cusum").delays == (3,)
    assert found_in(series([100]), at(102, 110), "cusum").is_right


def test_a_gradual_change_may_be_reported_from_its_begin_on_and_has_no_delay() -> None:
    found = found_in(series([140], begins=[100]), at(101, 141), "cusum")
    assert found == Found(has_changes=True, missed=0, false=0, delays=())


def test_a_healthy_series_is_right_without_a_report() -> None:
    assert found_in(series([]), [], "cusum").is_right
    assert found_in(series([]), at(50), "cusum") == Found(False, 0, 1, ())


def test_the_sums() -> None:
    found = [
        Found(False, 0, 0, ()),
        Found(False, 0, 2, ()),
        Found(True, 0, 0, (3, 4)),
        Found(True, 1, 0, (5,)),
        Found(True, 0, 1, ()),
        Found(True, 0, 0, (), within=2),
    ]
    assert score(found) == Score(
        right=3, strictly_right=2, series=6, false_positive=1, healthy=2, false_negative=1, changing=4, delay=4.0
    )


def test_what_varies_while_a_fault_lasts_is_no_false_report_where_hindsight_shows_it() -> None:
    values = [0.3] * 40 + [0.7] * 30 + [1.2] * 30 + [0.3] * 20
    recorded = Series("one", "congestion", values, [40, 100], run="run-1")
    onset, relief, varied = Report(40, 42), Report(100, 102), Report(70, 72)
    found = found_in(recorded, [onset, varied, relief], "cusum")
    assert found == Found(True, 0, 0, (3, 3), within=1)
    # BUT not where nothing changed, before or after the fault, or in what was simulated
    for report in (Report(85, 88), Report(20, 22), Report(69, 140)):
        assert found_in(recorded, [onset, report, relief], "cusum").false == 1
    simulated = Series("one", "step", values, [40, 100])
    assert found_in(simulated, [onset, varied, relief], "cusum").false == 1
