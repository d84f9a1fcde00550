"""Own times of ranks, block by block, from the records of simulated agents."""

from __future__ import annotations

import numpy as np
import pytest
from observed_jobs import JOBS, job, observed

from whichrank.testbed.bench.paper.observed import Configuration, observe
from whichrank.testbed.sim.faults import Fault
from whichrank.testbed.sim.telemetry import Agents

NOTHING = Fault("healthy")


@pytest.mark.parametrize("name", JOBS)
def test_blocks_take_what_they_were_given(name: str) -> None:
    # GIVEN forward passes of 40 ms, backward passes of 80 ms, and 5 ms for the optimizer
    drawn = job(name)
    seen = observed(drawn, NOTHING)
    # THEN every block of every rank is seen to take that
    blocks_s = np.median(seen.own_s, axis=(0, 1, 2))
    assert blocks_s == pytest.approx(np.where(drawn.schedule.phase == 0, 0.04, 0.08), rel=0.1)
    assert np.median(seen.optimizer_s) == pytest.approx(0.005, rel=0.1)


@pytest.mark.parametrize("name", JOBS)
def test_only_the_slow_rank_and_block_are_longer(name: str) -> None:
    drawn = job(name)
    fault = Fault("slow", "block", 3, microbatch=1, phase=1, delay_s=0.5, onset=1)
    seen = observed(drawn, fault)
    ranks = seen.config.pipelines.ranks
    replica, member, place = (int(at[0]) for at in np.nonzero(ranks == 3))
    longer = np.argwhere(np.median(seen.own_s, axis=0) > 0.3)
    assert {tuple(one[:2]) for one in longer.tolist()} == {(replica, member)}
    schedule = drawn.schedule
    block = longer[:, 2]
    assert (schedule.rank[block] == place).all()
    assert (schedule.microbatch[block] == 1).all()
    assert (schedule.phase[block] == 1).all()
    # AND what all ranks computed in an iteration is known by their number
    assert int(np.median(seen.computed_s, axis=0).argmax()) == 3


def test_iterations_are_as_long_as_they_were() -> None:
    drawn = job("tp2-pp2-dp2")
    run = drawn.run()
    done = [run.iterate() for _ in range(6)]
    records = [batch.record_rows() for batch in Agents(run).report(done)]
    seen = observe(Configuration(drawn.layout, drawn.schedule, drawn.layers), records)
    true_s = np.diff([one.steps_s[0][0] for one in done])
    assert seen.iteration_s == pytest.approx(true_s, abs=1e-3)


def test_records_of_another_job_are_refused() -> None:
    drawn = job("tp2-pp2-dp2")
    run = drawn.run()
    records = [batch.record_rows() for batch in Agents(run).report([run.iterate() for _ in range(3)])]
    with pytest.raises(ValueError, match="pipeline rank 0"):
        observe(Configuration(drawn.layout, drawn.schedule, drawn.layers + 1), records)
