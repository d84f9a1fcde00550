"""Optimizer steps are reported, several between two operations as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import VARIANTS, forked

from whichrank.model.kinds import Kind
from whichrank.store.steps import Steps

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_close_iterations(variant: str, tmp_path: Path, nursery: Path) -> None:
    # GIVEN five iterations of three microbatches and two optimizers, and then steps that are compiled
    with forked("steps", 2, tmp_path, variant, nursery) as job:
        rings = job.finish()

    for ring in rings:
        rows = np.array([row for row in ring.records if row["kind"] == Kind.STEP])
        # THEN each iteration has one step, behind its three operations; a compiled one is reported outside of its graph
        # or not at all, and never twice
        assert rows["counter"].tolist() == list(range(1, len(rows) + 1))
        # AND an optimizer that wraps another one has one, behind its own operation
        assert rows["ordinal"][:6].tolist() == [3, 6, 9, 12, 15, 16]
        assert 6 <= len(rows) <= 9
        steps = Steps()
        steps.feed(np.full(len(rows), 0), rows)
        assert [steps.iteration_of(0, n) for n in (1, 3, 4, 15)] == [0, 0, 1, 4]
