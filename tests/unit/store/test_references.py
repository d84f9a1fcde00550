"""By which iterations of other ranks those of a rank are numbered."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.store import references as module
from whichrank.store.references import References


def added(sort: int, first_s: float, first: int, count: int = 10, to: References | None = None) -> References:
    references = to or References()
    references.add(sort, first_s + np.arange(count) * 2.0, first + np.arange(count))
    return references


def test_an_iteration_has_the_number_of_those_that_begin_alike() -> None:
    # GIVEN two stages of a pipeline, the second of which begins its iterations a second after the first one
    references = added(1, 100.0, 5)
    added(2, 101.0, 5, to=references)
    # THEN a rank of either is numbered by those of its own stage
    assert [references.number_at(1, at_s) for at_s in (99.1, 100.9, 118.0, 122.2)] == [5, 5, 14, 16]
    assert [references.number_at(2, at_s) for at_s in (100.1, 101.9)] == [5, 5]
    # AND one of another stage by those that came last
    assert references.number_at(3, 101.2) == 5


def test_those_of_a_phase_that_is_over_say_little() -> None:
    # GIVEN an evaluation that was there long ago THEN iterations are counted on from the training in between
    references = added(1, 0.0, 0)
    added(2, 20.0, 10, count=60, to=references)
    assert not references.has_recent(1, 140.0)
    assert references.number_at(1, 140.0) == 70


def test_without_any_there_is_no_number() -> None:
    assert References().number_at(1, 5.0) is None
    assert References().iteration_s() == 0.0


def test_an_iteration_takes_as_long_as_those_since_the_beginning_changed() -> None:
    references = added(1, 0.0, 0)
    assert references.iteration_s() == 2.0
    references.begin_anew()
    assert references.iteration_s() == 0.0
    references.add(1, np.array([100.0, 105.0]), np.array([20, 21]))
    assert references.iteration_s() == 5.0


def test_few_sorts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SORTS", 1)
    references = added(1, 0.0, 0)
    added(2, 1.0, 100, to=references)
    assert references.number_at(2, 0.0) == 0
