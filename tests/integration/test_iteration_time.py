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


@pytest.mark.parametrize(("has_steps", "found_by"), [(True, "steps"), (False, "operations")])
def test_a_script_that_was_not_written_for_it_tells_its_iterations(
    has_steps: bool, found_by: str, nursery: Path
) -> None:
    # GIVEN a script that trains with DDP and logs in each tenth step, with and without optimizer steps
    compared = compare("ddp", nursery, has_steps=has_steps, run_s=RUN_S)
    # THEN iterations are found by what there is, and there are as many as the ranks have begun
    assert compared.found_by == found_by
    assert compared.iterations >= 4 * compared.ranks
    assert compared.off is not None
    assert abs(compared.off) < NEAR, compared
