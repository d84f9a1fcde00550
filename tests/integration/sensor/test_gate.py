"""The gate keeps all ranks of a real job at the same point, and lets them go on as if nothing had been."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from jobs import PATIENCE_S, VARIANTS, Job, forked

from whichrank.model.codes import GateTest
from whichrank.model.rows import GATE
from whichrank.ring.gate import RingGate

pytestmark = pytest.mark.integration

RANKS = 4
AHEAD = 10  # steps: so many are left to ranks while their gates are closed one by one
TOLD, NOT_RENEWED = 1, 2


def gates(job: Job) -> list[RingGate]:
    """Of all ranks, once each has made a few steps."""
    rings = job.until(lambda rings: all(int(ring.raw["gate"]["steps"]) > 3 for ring in rings), "steps")
    return [RingGate(job.folder / "rings" / f"{ring.pid}.ring") for ring in rings]


def shut(job: Job, all_of: list[RingGate], pause: int) -> int:
    """Keep all ranks behind a step that none has made; returns which."""
    step = max(int(gate.read()["steps"]) for gate in all_of) + AHEAD
    for gate in all_of:
        gate.shut(pause, longest_s=20, at_step=step)
    renew_until(job, all_of, "arrived", pause)
    return step


def renew_until(job: Job, all_of: list[RingGate], field: str, number: int) -> None:
    """Keep the gates closed until all say this number."""
    give_up = time.monotonic() + PATIENCE_S
    while not all(int(gate.read()[field]) == number for gate in all_of):
        assert job.process.poll() is None
        assert time.monotonic() < give_up, [gate.read() for gate in all_of]
        for gate in all_of:
            gate.renew(int(gate.read()["renewals"]) + 1)
        time.sleep(0.002)


def said(folder: Path) -> list[str]:
    return [(folder / f"said.{rank}").read_text() for rank in range(RANKS)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_ranks_wait_at_the_same_point_and_go_on(variant: str, tmp_path: Path, nursery: Path) -> None:
    # GIVEN a job that is kept back again and again, and one that is not
    plain, paused = tmp_path / "plain", tmp_path / "paused"
    with forked("gated", RANKS, plain, variant, nursery, ITERATIONS="400") as job:
        job.finish()
    with forked("gated", RANKS, paused, variant, nursery, ITERATIONS="400") as job:
        all_of, held = gates(job), list[int]()
        for pause in range(1, 11):
            step = shut(job, all_of, pause)
            # THEN all have come exactly so far, and none is in an operation
            rings = job.rings()
            if all(int(ring.raw["gate"]["opened"]) != pause for ring in rings):  # else nobody renewed them in time
                held.append(pause)
                assert [int(ring.raw["gate"]["steps"]) for ring in rings] == [step] * RANKS
                assert [[str(wait) for wait in ring.waits] for ring in rings] == [[]] * RANKS
            for gate in all_of:
                gate.open()
        rings = job.finish()
    assert held
    for ring in rings:
        assert int(ring.raw["gate"]["opened"]) == 10
        assert int(ring.raw["gate"]["opened_by"]) == TOLD or 10 not in held
    # AND what they compute is the same, bit for bit
    assert said(paused) == said(plain)


def test_job_goes_on_when_whoever_closed_the_gate_is_dead(tmp_path: Path, nursery: Path) -> None:
    with forked("gated", RANKS, tmp_path, "cpp", nursery) as job:
        all_of = gates(job)
        shut(job, all_of, 1)
        rings = job.finish()  # nobody renews it or opens it
    assert [int(ring.raw["gate"]["opened_by"]) for ring in rings] == [NOT_RENEWED] * RANKS


@pytest.mark.parametrize("variant", VARIANTS)
def test_program_gets_what_its_handler_raises_in_a_test(variant: str, tmp_path: Path, nursery: Path) -> None:
    with forked("handled", 1, tmp_path, variant, nursery) as job:
        all_of = gates(job)
        shut(job, all_of, 1)
        # WHEN a signal comes while a test is made
        test = np.zeros((), GATE)
        test["test_kind"], test["test_repeats"] = GateTest.COMPUTE, 3
        all_of[0].ask(5, test)
        pid = job.rings()[0].pid
        os.kill(pid, signal.SIGUSR1)
        renew_until(job, all_of, "tested", 5)
        # THEN the test is made all the same
        assert bytes(all_of[0].read()["problem"]) == b""
        assert int(all_of[0].read()["results"]) == 9
        all_of[0].open()
        job.until(lambda rings: int(rings[0].raw["gate"]["steps"]) > int(all_of[0].read()["at_step"]) + 3, "steps")
        job.open_gate("enough")
        job.finish()
    # AND the handler was called once, and the program got what it raised
    assert (tmp_path / "said").read_text() == "called 1, caught 1"


def test_thread_beside_training_does_not_arrive_for_it(tmp_path: Path, nursery: Path) -> None:
    with forked("beside", 2, tmp_path, "cpp", nursery) as job:
        all_of = gates(job)
        for pause in range(1, 4):
            shut(job, all_of, pause)
            # THEN none computes any more when all have come
            assert list(tmp_path.glob("computes.*")) == []
            for gate in all_of:
                gate.open()
        job.open_gate("enough")
        job.finish()
