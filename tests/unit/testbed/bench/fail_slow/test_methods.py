"""Each method on a series in which it cannot fail, and what is said where PELT cannot be had."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from whichrank.errors import UsageError
from whichrank.testbed.bench.fail_slow.methods import METHODS, Report, all_ours, pelt


def quiet(length: int = 200, seed: int = 0) -> NDArray[np.float64]:
    return 1 + 0.02 * np.random.default_rng(seed).standard_normal(length)


def stepped() -> NDArray[np.float64]:
    values = quiet()
    values[100:] *= 1.5
    return values


def run(method: str, values: NDArray[np.float64]) -> list[Report]:
    if method == "pelt":
        pytest.importorskip("ruptures")
    return METHODS[method](values)


@pytest.mark.parametrize("method", METHODS)
def test_a_large_step_is_reported_at_its_place(method: str) -> None:
    reports = run(method, stepped())
    assert reports
    assert all(abs(report.place - 100) <= 6 for report in reports)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_does_not_matter(method: str, unit: float) -> None:
    assert run(method, stepped() * unit) == run(method, stepped())


@pytest.mark.parametrize("method", [name for name in METHODS if name != "cusum"])
def test_quiet_values_are_not_reported(method: str) -> None:
    assert run(method, quiet()) == []


@pytest.mark.parametrize("method", [name for name in METHODS if name != "pelt"])
def test_online_methods_do_not_look_ahead(method: str) -> None:
    values = stepped()
    seen = [report for report in run(method, values) if report.seen < 110]
    assert run(method, values[:110]) == seen


def test_ours_takes_series_of_different_lengths_together() -> None:
    short, long = all_ours([quiet(50), stepped()])
    assert short == []
    assert long == [Report(100, 102)]


def test_without_ruptures_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    with pytest.raises(UsageError) as caught:
        pelt(quiet())
    assert str(caught.value) == "PELT needs ruptures, which is not installed\n  mend:  pip install ruptures"
