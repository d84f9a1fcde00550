"""One cell of the death, async and skew matrix, judged as `scripts/bench matrix` does.

The matrix is tested in three files, since the workers of the tests share them out file by file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from whichrank.testbed.bench.campaign import matrix_plan
from whichrank.testbed.bench.setup import Setup
from whichrank.testbed.bench.trial import Trial
from whichrank.testbed.demo.matrix import ASYNC, DEATH

CELLS = matrix_plan(seeds=1)

# A machine that is busy with other things may not let the fault happen, or the job may end before its evidence is read.
# These are tried once more; nothing else is. How soon the alert came is for `scripts/bench`.
AGAIN = ("no_fault_done", "unknown")


def is_death(setup: Setup) -> bool:
    return setup.fault in DEATH


def is_async(setup: Setup) -> bool:
    return setup.fault in ASYNC


def is_skew(setup: Setup) -> bool:
    return not is_death(setup) and not is_async(setup)


def cells(wanted: Callable[[Setup], bool]) -> list[Setup]:
    """One seed of each cell of this kind."""
    return [setup for setup in CELLS if wanted(setup)]


def name_of(setup: Setup) -> str:
    return "-".join(filter(None, (setup.fault, setup.variant, "reinit" if setup.job_args else "")))


def assert_right(setup: Setup, folder: Path, nursery: Path) -> None:
    """Run it, and hold the verdict, and every word that was said, against the truth."""
    trial = folder / "first"
    result = Trial(setup, trial, nursery=nursery).run()
    if result.verdict in AGAIN:
        trial = folder / "second"
        result = Trial(setup, trial, nursery=nursery).run()
    log = (trial / "job.log").read_text(errors="replace")[-4000:]
    assert result.verdict in ("right", "late"), f"{result.truth}\n{result.incidents}\n{log}"
