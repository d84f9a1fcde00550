"""Own times of simulated ranks are spread as those of the lab."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

from whichrank.stage.layout import Layout
from whichrank.stage.schedules import one_f_one_b
from whichrank.testbed.sim.noise import deviations
from whichrank.testbed.sim.run import Run, Times
from whichrank.testbed.sim.telemetry import Agents
from whichrank.wire.tape import Tape

TAPES = Path(__file__).parents[3] / "kept" / "tapes"
FAR = 0.15
"""Recordings of the lab on several days are as far from each other."""


def recorded(name: str, folder: Path, until: int) -> np.ndarray:
    """Deviations of the iterations of a kept recording that nothing was done to."""
    tape = folder / "recorded.tape"
    tape.write_bytes(lzma.decompress((TAPES / f"{name}.tape.xz").read_bytes()))
    rows = [entry.batch.record_rows() for entry in Tape(tape) if entry.batch is not None and entry.batch.records]
    return deviations(np.concatenate(rows), until)


def simulated(**times: float) -> np.ndarray:
    run = Run(Layout(tp=2, dp=2, pp=2), one_f_one_b(2, 4), times=Times(**times), seed=1)
    agents = Agents(run)
    batches = [batch for _ in range(40) for batch in agents.report([run.iterate()])]
    return deviations(np.concatenate([batch.record_rows() for batch in batches]), 1000)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Kolmogorov and Smirnov's: the largest difference of the two distributions."""
    at = np.sort(np.concatenate((one, other)))
    shares = [np.searchsorted(np.sort(values), at, side="right") / len(values) for values in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


@pytest.mark.parametrize(
    ("name", "until"),
    [("slow-more-tokens-0-x1.5", 1000), ("slow-two-slow-0-x2", 12), ("slow-data-0-x2", 12)],
)
def test_simulated_own_times_are_spread_as_recorded_ones(
    name: str, until: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_lab, of_sim = recorded(name, tmp_path, until), simulated()
    normal = simulated(spread=0.0)
    apart = distance(of_lab, of_sim)
    with capsys.disabled():
        print(f"\nKS distance to {name} (n = {len(of_lab):,} and {len(of_sim):,}): {apart:.3f}")
    assert len(of_lab) > 1000
    assert apart < FAR < distance(of_lab, normal)


def test_distance_is_that_of_the_distributions() -> None:
    assert distance(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0.0
    assert distance(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 1.0
    assert distance(np.array([1.0, 3.0]), np.array([2.0, 4.0])) == 0.5
