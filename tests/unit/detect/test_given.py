"""What ranks were given, iteration by iteration, whatever comes when."""

from __future__ import annotations

import numpy as np
from hypothesis import given as for_all
from hypothesis import strategies as st

from whichrank.detect.given import Given
from whichrank.model.iterations import GIVEN, STEP


def notes(*rows: tuple[int, int, float, float]) -> np.ndarray:
    return np.array(list(rows), GIVEN)


def steps(rank: int, *at_ns: int, first: int = 1) -> np.ndarray:
    return np.array([(rank, first + k, 0, at) for k, at in enumerate(at_ns)], STEP)


def test_several_backward_passes_of_an_iteration_are_one_and_what_is_not_over_waits() -> None:
    known = Given()
    known.feed(notes((0, 5, 10, 2), (0, 11, 100, 4), (0, 15, 300, 8), (0, 25, 7, 1), (1, 12, 50, 0)))
    # WHEN two iterations of rank 0 are over, and none of rank 1
    made = steps(0, 10, 20)
    work = known.of(made[:1], made[1:])
    # THEN what came before the first is left out
    assert work.elements.tolist() == [400.0]
    assert work.lengths.tolist() == [(100 * 4 + 300 * 8) / 400]
    # AND what came after them is not lost
    made = np.concatenate((steps(0, 20, 30, first=2), steps(1, 10, 20)))
    work = known.of(made[[0, 2]], made[[1, 3]])
    assert work.elements.tolist() == [7.0, 50.0]
    assert work.lengths.tolist() == [1.0, 0.0]
    # AND of what was never given, or is forgotten, nothing is known
    known.feed(notes((0, 35, 10, 2)))
    known.forget()
    made = steps(0, 30, 40, first=3)
    assert known.of(made[:1], made[1:]).elements.tolist() == [0.0]


@for_all(st.integers(0, 2**32 - 1))
def test_it_is_what_plain_python_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranks = 3
    made = [steps(r, *np.unique(rng.integers(0, 200, rng.integers(2, 8))).tolist()) for r in range(ranks)]
    made = [one for one in made if len(one) > 1]
    begin = np.concatenate([np.zeros(0, STEP), *(one[:-1] for one in made)])
    end = np.concatenate([np.zeros(0, STEP), *(one[1:] for one in made)])
    rows = notes(*((int(rng.integers(4)), int(rng.integers(220)), float(rng.integers(1, 9)), 2.0) for _ in range(30)))
    known = Given()
    for part in np.array_split(rows, 3):
        known.feed(part)
    expected = []
    for b, e in zip(begin, end, strict=True):
        inside = (rows["rank"] == b["rank"]) & (rows["at_ns"] >= b["at_ns"]) & (rows["at_ns"] < e["at_ns"])
        expected.append(float(rows["elements"][inside].sum()))
    assert known.of(begin, end).elements.tolist() == expected
