"""One seed of each cell of the death, async and skew matrix, judged as `scripts/bench matrix` does."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.bench.campaign import key_of, matrix_plan
from whichrank.bench.trial import Setup, Trial

CELLS = matrix_plan(seeds=1)

# A machine that is busy with other things may not let the fault happen, or the job may end before its evidence is read.
# These are tried once more; nothing else is. How soon the alert came is for `scripts/bench`.
AGAIN = ("no_fault_done", "unknown")


def name_of(setup: Setup) -> str:
    return "-".join(filter(None, (setup.fault, setup.variant, "reinit" if setup.job_args else "")))


@pytest.mark.parametrize("setup", CELLS, ids=name_of)
def test_the_cell_names_the_culprit_and_nobody_else(setup: Setup, tmp_path: Path) -> None:
    # GIVEN a job of the demo and a fault of the matrix
    folder = tmp_path / "first"

    # WHEN it runs under whichrank
    result = Trial(setup, folder).run()
    if result.verdict in AGAIN:
        folder = tmp_path / "second"
        result = Trial(setup, folder).run()

    # THEN the verdict is the truth, in every word that was said
    log = (folder / "job.log").read_text(errors="replace")[-4000:]
    assert result.verdict in ("right", "late"), f"{result.truth}\n{result.incidents}\n{log}"


def test_every_cell_is_another_trial() -> None:
    import msgspec

    keys = [key_of(msgspec.to_builtins(setup)) for setup in CELLS]
    assert len(set(keys)) == len(keys)
