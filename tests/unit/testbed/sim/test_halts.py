"""A simulated job that stands still is what its halt says: records, states, connections and probes."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.model.kinds import Kind
from whichrank.model.telemetry import TCP_ROW, Batch
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import one_f_one_b
from whichrank.testbed.sim.connections import address
from whichrank.testbed.sim.halts import Halt, Where
from whichrank.testbed.sim.program import TP
from whichrank.testbed.sim.run import Iteration, Run
from whichrank.testbed.sim.telemetry import Agents

RANK = 21
ONSET = 2


def halted(where: Where) -> tuple[Run, Halt, Iteration]:
    """A job of 64 ranks in the iteration in which it stops."""
    run, halt = Run(Layout(tp=8, dp=2, pp=4), one_f_one_b(4, 4), layers=1), Halt(where, RANK, ONSET)
    halt.install(run)
    run.iterate()
    last = run.iterate()
    halt.correct(run, last)
    return run, halt, last


def standing_in(batches: list[Batch]) -> np.ndarray:
    """Waits of all ranks."""
    return np.concatenate([batch.wait_rows() for batch in batches])


@pytest.mark.parametrize("where", ["tp", "world", "deadlock", "lost message", "left out", "dead node"])
def test_job_stands_still_from_the_onset_on(where: Where) -> None:
    run, halt, last = halted(where)
    assert not last.is_whole
    # WHEN the next iteration is computed, THEN no rank is through with it
    following = run.iterate()
    assert not any(np.isfinite(steps_s).any() for steps_s in following.steps_s)
    assert halt.at_fault(run) == {"dead node": frozenset(range(16, 24)), "deadlock": frozenset()}.get(
        where, frozenset() if where == "lost message" else frozenset({RANK})
    )


def test_ranks_of_a_deadlock_receive_from_each_other() -> None:
    run, _, last = halted("deadlock")
    waits = standing_in(list(Agents(run).report([last])))
    assert waits["row"]["kind"].tolist() == [Kind.RECV] * 64
    assert waits["row"]["peer"].tolist() == [*range(1, 64), 0]


def test_rank_that_leaves_an_operation_out_goes_on_with_one_number_less() -> None:
    run, _, last = halted("left out")
    waits = standing_in(list(Agents(run).report([last])))
    in_tp = waits["rank"][waits["row"]["comm_slot"] == TP].tolist()
    # THEN its tensor-parallel peers wait in what it left out, and it waits elsewhere; its message is received
    assert [rank for rank in in_tp if rank >= 16] == [rank for rank in range(16, 24) if rank != RANK]
    assert RANK in waits["rank"]
    assert in_tp[0] == RANK - 16
    mine, other = last.ops[1][RANK - 16], last.ops[1][0]
    assert int(other["ordinal"][-1]) - int(mine["ordinal"][-1]) == 1


def test_node_that_is_lost_answers_nobody_and_reports_nothing() -> None:
    run, halt, last = halted("lost node")
    agents = Agents(run)
    halt.report(run, agents, 1001.0)
    agents.probe(0, [address(2), address(3)], 1003.0)
    batches = list(agents.report([last], 1003.0))
    # THEN its agent is missing, and what its neighbours send to it is sent again and again
    assert [batch.host for batch in batches] == [f"node{node}" for node in range(8) if node != 2]
    ends = np.concatenate([np.frombuffer(batch.connections, TCP_ROW) for batch in batches])
    assert np.unique(ends["rank"][ends["info"]["retransmits"] > 2]).tolist() == [*range(8, 16), *range(24, 32)]
    # AND of those that are probed only the other one answers
    assert [event.probe.answered for event in batches[0].events if event.probe] == [0, 16]


def test_node_that_is_silent_answers_the_others() -> None:
    run, halt, last = halted("silent node")
    agents = Agents(run)
    halt.report(run, agents, 1001.0)
    batches = list(agents.report([last], 1003.0))
    assert len(batches) == 7
    ends = np.concatenate([np.frombuffer(batch.connections, TCP_ROW) for batch in batches])
    assert not ends["info"]["retransmits"].any()
