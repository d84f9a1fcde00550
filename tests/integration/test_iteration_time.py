"""The iteration time that is found in a real job, beside that of its ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.testbed.bench.iteration_time import compare

pytestmark = pytest.mark.integration

RUN_S = 12.0
"""A period is learnt in the first three."""
NEAR = 0.25
"""On a busy machine single iterations differ; an iteration that is taken for two, or for half a one, is off by more."""


def test_a_script_that_was_not_written_for_it_tells_its_iterations(nursery: Path) -> None:
    # GIVEN a script that trains with DDP and logs in each tenth step, of which no step is noted
    compared = compare("ddp", nursery, has_steps=False, run_s=RUN_S)
    # THEN iterations are found by what there is, and there are as many as the ranks have begun
    assert compared.found_by == "operations"
    assert compared.iterations >= 4 * compared.ranks
    assert compared.off is not None
    assert abs(compared.off) < NEAR, compared
