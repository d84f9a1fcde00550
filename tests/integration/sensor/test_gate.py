"""The gate keeps all ranks of a real job at the same point, and lets them go on as if nothing had been."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from jobs import PATIENCE_S, VARIANTS, Job, forked

from whichrank.ring.gate import RingGate

pytestmark = pytest.mark.integration

RANKS = 4
TOLD, NOT_RENEWED = 1, 2


def gates(job: Job) -> list[RingGate]:
    """Of all ranks, once each has made a few steps."""
    rings = job.until(lambda rings: all(int(ring.raw["gate"]["steps"]) > 3 for ring in rings), "steps")
    return [RingGate(job.folder / "rings" / f"{ring.pid}.ring") for ring in rings]


def shut(job: Job, all_of: list[RingGate], pause: int) -> int:
    """Keep all ranks behind a step that none has made; returns which."""
    step = max(int(gate.read()["steps"]) for gate in all_of) + 3
    for gate in all_of:
        gate.shut(pause, longest_s=20, at_step=step)
    give_up, count = time.monotonic() + PATIENCE_S, 0
    while not all(int(gate.read()["arrived"]) == pause for gate in all_of):
        assert job.process.poll() is None
        assert time.monotonic() < give_up, [gate.read() for gate in all_of]
        count += 1
        for gate in all_of:
            gate.renew(count)
        time.sleep(0.002)
    return step


def said(folder: Path) -> list[str]:
    return [(folder / f"said.{rank}").read_text() for rank in range(RANKS)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_ranks_wait_at_the_same_point_and_go_on(variant: str, tmp_path: Path, nursery: Path) -> None:
    # GIVEN a job that is kept back again and again, and one that is not
    plain, paused = tmp_path / "plain", tmp_path / "paused"
    with forked("gated", RANKS, plain, variant, nursery) as job:
        job.finish()
    with forked("gated", RANKS, paused, variant, nursery) as job:
        all_of = gates(job)
        for pause in range(1, 11):
            step = shut(job, all_of, pause)
            # THEN all have come exactly so far, and none is in an operation
            rings = job.rings()
            assert [int(ring.raw["gate"]["steps"]) for ring in rings] == [step] * RANKS
            assert [len(ring.waits) for ring in rings] == [0] * RANKS
            for gate in all_of:
                gate.open()
        rings = job.finish()
    for ring in rings:
        assert int(ring.raw["gate"]["opened"]) == 10
        assert int(ring.raw["gate"]["opened_by"]) == TOLD
    # AND what they compute is the same, bit for bit
    assert said(paused) == said(plain)


def test_job_goes_on_when_whoever_closed_the_gate_is_dead(tmp_path: Path, nursery: Path) -> None:
    with forked("gated", RANKS, tmp_path, "cpp", nursery) as job:
        all_of = gates(job)
        shut(job, all_of, 1)
        rings = job.finish()  # nobody renews it or opens it
    assert [int(ring.raw["gate"]["opened_by"]) for ring in rings] == [NOT_RENEWED] * RANKS
