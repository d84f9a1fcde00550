"""A job whose ranks note no optimizer steps: its iterations are found by their operations, and a slow rank is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whichrank.model.kinds import Kind
from whichrank.model.telemetry import RECORD_REPORTED
from whichrank.testbed.bench.setup import Setup
from whichrank.testbed.bench.trial import Trial
from whichrank.wire.tape import FILE_NAME, Tape

pytestmark = pytest.mark.integration


def test_a_slow_rank_is_named_without_optimizer_steps(tmp_path: Path, nursery: Path) -> None:
    # GIVEN a rank that is slow from the start, and ranks that note no optimizer steps
    setup = Setup("slow-start", 4, seed=1, layout="dp4", variant="x5", record=True, has_steps=False)
    result = Trial(setup, tmp_path, nursery=nursery).run()
    said = Path(result.log).read_text(errors="replace")[-3000:]
    # THEN none was received
    batches = [entry.batch for entry in Tape(tmp_path / FILE_NAME) if entry.batch is not None]
    kinds = {int(k) for b in batches for k in np.unique(np.frombuffer(b.records, RECORD_REPORTED)["row"]["kind"])}
    assert Kind.ALL_REDUCE in kinds, said
    assert Kind.STEP not in kinds
    # AND the rank is named, and no other; the result says how it was found
    assert result.truth is not None, said
    assert result.verdict in ("right", "late"), (result.verdict, result.truth, result.incidents, said)
    assert result.setup["has_steps"] is False
