"""A rank that dies, and what its peers do about it: one seed of each cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import assert_right, cells, is_death, name_of

from whichrank.testbed.bench.setup import Setup

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("setup", cells(is_death), ids=name_of)
def test_the_cell_names_the_culprit_and_nobody_else(setup: Setup, tmp_path: Path, nursery: Path) -> None:
    # GIVEN a job of the demo and a fault of the matrix WHEN it runs under whichrank THEN the verdict is the truth
    assert_right(setup, tmp_path, nursery)
