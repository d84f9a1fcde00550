"""Each halt of a simulated job is located right."""

from __future__ import annotations

import pytest

from whichrank.testbed.bench.scale.location import measure, stand
from whichrank.testbed.sim.halts import WHERE, Where


@pytest.mark.parametrize("where", WHERE)
def test_each_halt_is_located(where: Where) -> None:
    standing = stand(where, 64)
    assert standing.is_right(standing.locate())
    assert not standing.is_right(None)


def test_time_of_a_location_is_measured_beside_its_verdict() -> None:
    located, picture = measure([64], ["tp"], locations=3)
    assert (located.ranks, located.n, located.unit, located.is_right) == (64, 3, "ms", True)
    assert 0 < located.low <= located.median <= located.high
    assert picture.is_right is None
