"""How much longer computation may take for more work, and no longer."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.model.work import Work, longer_for


def work(elements: float, length: float) -> Work:
    return Work(np.array([elements]), np.array([length]))


@pytest.mark.parametrize(
    ("now", "usual", "longer"),
    [
        ((1000, 10), (1000, 10), 1.0),
        ((1020, 10), (1000, 10), 1.0),  # about as much
        ((1100, 10), (1000, 10), 1.21),
        ((2000, 20), (1000, 10), 4.0),  # rows are longer: attention takes four times
        ((1000, 20), (1000, 10), 2.0),  # half as many, twice as long
        ((1000, 10), (1000, 20), 2.0),  # or it is the other side that is the length
        ((500, 10), (1000, 10), 1.0),  # less takes no longer
        ((500, 40), (1000, 10), 2.0),
        ((2000, 0), (1000, 0), 4.0),
        ((0, 0), (1000, 10), 1.0),  # not known
        ((1000, 10), (0, 0), 1.0),
    ],
)
def test_what_more_work_explains(now: tuple[float, float], usual: tuple[float, float], longer: float) -> None:
    assert work(*now).longer_than(work(*usual)).tolist() == pytest.approx([longer])


def test_of_ranks_the_middle_one_is_usual() -> None:
    all_of_it = Work(np.array([[1.0, 4.0], [2.0, 5.0], [9.0, 6.0]]), np.zeros((3, 2)))
    assert all_of_it.middle().elements.tolist() == [2.0, 5.0]
    assert all_of_it.median().elements.tolist() == [2.5, 3.5, 7.5]
    assert all_of_it[1:, :1].elements.tolist() == [[2.0], [9.0]]
    assert longer_for(np.array([1.02, 1.03, 2.0])).tolist() == pytest.approx([1.0, 1.0609, 4.0])
