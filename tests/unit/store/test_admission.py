"""Which agents are of this job: what is told apart, what is held, and what a restart may do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.commands import Leave
from whichrank.model.telemetry import RANK_ROW, VERSION, Batch, Launch, ProcessState
from whichrank.store.admission import Admission, Standing

S = 1_000_000_000
T0_S = 1000.0
"""On the clocks of all hosts, when ours says 0."""
JOB = "run-of-node-0"
ADMITTED, HELD, REFUSED = Standing.ADMITTED, Standing.HELD, Standing.REFUSED


def batch(agent: str, ranks: list[int], *, at_s: float, met_s: float = 1.0, **more: Any) -> Batch:
    """What an agent says of running ranks that met at `met_s`; 0: they have not met."""
    rows = np.zeros(len(ranks), RANK_ROW)
    rows["rank"], rows["state"], rows["world_size"] = ranks, ProcessState.SLEEPING, more.pop("world", 4)
    rows["pid"] = np.array(ranks) + more.pop("pid", 100)
    rows["created_ns"], rows["init_ns"] = 1, int((T0_S + met_s) * S) if met_s else 0
    if more.pop("ended", False):
        rows["state"], rows["ended_ns"] = ProcessState.GONE, 1
    own = agent == "own"
    return Batch(
        version=VERSION, job=JOB if own else f"run-of-{agent}", agent=agent, host=agent,
        sequence=int(at_s * 10), sent_ns=int((T0_S + at_s) * S), sent_realtime_ns=0, delay_bound_ns=0, node_ranks=9,
        ranks=rows.tobytes(), node=agent, beside_analyzer=own, launch=more.pop("launch", Launch()),
    )  # fmt: skip


class Port:
    """What comes to one address: each agent says the same again every half a second."""

    def __init__(self) -> None:
        self.admission = Admission(JOB)
        self.admission.begin(0.0)
        self.now_s = 1.0

    def hear(self, until_s: float, **agents: dict[str, Any]) -> dict[str, Standing]:
        """Until then; the last standing of each."""
        last: dict[str, Standing] = {}
        while self.now_s < until_s:
            for agent, what in agents.items():
                last[agent] = self.admission.judge(batch(agent, at_s=self.now_s, **what), self.now_s)
            self.now_s += 0.5
        return last


OURS = Launch(run_id="none", master_port=29500, world_size=4)


@pytest.mark.parametrize(
    ("theirs", "fact", "values"),
    [
        ({"launch": Launch(run_id="none", master_port=29501, world_size=4)}, "master_port", ("29501", "29500")),
        ({"launch": Launch(run_id="b", master_port=29500, world_size=4)}, "run_id", ("b", "none")),
        ({"launch": Launch(run_id="none", master_port=29500, world_size=8)}, "world_size", ("8", "4")),
        ({"world": 8}, "world_size", ("8", "4")),
        ({"ranks": [1]}, "rank", ("1", "")),
        ({"met_s": -60.0}, "older", ("", "")),
    ],
)
def test_an_agent_of_another_job_is_refused_and_nothing_of_it_was_taken(
    theirs: dict[str, Any], fact: str, values: tuple[str, str]
) -> None:
    # GIVEN a job whose own ranks run
    port = Port()
    ours = {"ranks": [0, 1], "launch": OURS}
    assert port.hear(3.0, own=ours) == {"own": ADMITTED}

    # WHEN an agent comes that contradicts it
    stray = {"ranks": [2, 3], **theirs}
    assert port.hear(5.0, own=ours, stray=stray) == {"own": ADMITTED, "stray": HELD}
    assert port.hear(8.0, own=ours, stray=stray) == {"own": ADMITTED, "stray": REFUSED}

    # THEN it is reported why, and nothing of it has been taken
    refusal = port.admission.refusal("stray")
    assert refusal is not None
    assert (refusal.job, refusal.fact, (refusal.theirs, refusal.ours)) == (JOB, fact, values)
    assert not port.admission.was_fed("stray")


@pytest.mark.parametrize(
    "other", [{}, {"launch": OURS}, {"met_s": 0.0}, {"launch": Launch(run_id="none", master_port=29500)}]
)
def test_the_other_node_of_a_job_is_taken_at_once(other: dict[str, Any]) -> None:
    port = Port()
    ours = {"ranks": [0, 1], "launch": OURS}
    assert port.hear(9.0, other={"ranks": [2, 3], **other}, own=ours) == {"own": ADMITTED, "other": ADMITTED}


def test_what_is_left_of_an_earlier_attempt_waits_for_our_ranks_and_is_refused() -> None:
    # GIVEN a run whose ranks are not there yet, and an agent of the attempt before: same port, same size
    port, left = Port(), {"ranks": [2, 3], "launch": OURS, "met_s": -300.0}
    assert port.hear(6.0, left=left) == {"left": HELD}
    # WHEN they come, and with them the other node of this attempt
    ours, new = {"ranks": [0, 1], "launch": OURS}, {"ranks": [2, 3], "launch": OURS, "pid": 500}
    # THEN the old one is refused and not the new one
    assert port.hear(12.0, own=ours, left=left, new=new) == {"own": ADMITTED, "left": REFUSED, "new": ADMITTED}


def test_a_run_without_ranks_of_its_own_takes_those_that_met_before_it_began() -> None:
    port = Port()
    assert port.hear(30.0, a={"ranks": [0, 1], "met_s": -300.0}) == {"a": ADMITTED}


def test_of_two_named_jobs_the_first_stays() -> None:
    # GIVEN agents that were reported the name of their job, and a run that has no ranks
    port = Port()
    first, other = ({"launch": Launch(name=name), "ranks": [0]} for name in ("1234", "1235"))
    assert port.hear(2.0, first=first) == {"first": ADMITTED}
    same = {"launch": Launch(name="1234"), "ranks": [1]}
    # WHEN two more come THEN the one of another name is refused, and the first is never in doubt
    assert port.hear(8.0, first=first, other=other, same=same) == {
        "first": ADMITTED,
        "other": REFUSED,
        "same": ADMITTED,
    }


def test_a_restart_with_other_ranks_ports_and_sizes_is_the_same_job() -> None:
    # GIVEN a job of four ranks on two nodes that an analyzer without ranks hears
    port = Port()
    before = [{"ranks": r, "launch": OURS} for r in ([0, 1], [2, 3])]
    assert port.hear(5.0, a=before[0], b=before[1]) == {"a": ADMITTED, "b": ADMITTED}
    # WHEN all ranks end, and six others begin, on another port and with ranks changed over; one node is reported of
    # first
    launch = Launch(run_id="none", master_port=40001, world_size=6)
    after = [{"ranks": r, "launch": launch, "world": 6, "pid": 900, "met_s": 6.0} for r in ([2, 3], [0, 1], [4, 5])]
    ended = {**before[1], "ended": True}
    port.hear(7.0, a=after[0], b=ended, c=after[2])
    # THEN all are taken again within seconds, and none is ever refused
    assert port.hear(10.5, a=after[0], b=after[1], c=after[2]) == {"a": ADMITTED, "b": ADMITTED, "c": ADMITTED}
    assert port.admission.take_again("a")


def test_an_agent_that_was_killed_and_its_successor_are_of_one_job() -> None:
    port = Port()
    port.hear(4.0, own={"ranks": [0, 1]}, old={"ranks": [2, 3]})
    same = batch("new", [2, 3], at_s=port.now_s)
    again = Batch(**{name: getattr(same, name) for name in Batch.__struct_fields__} | {"node": "old"})
    assert port.admission.judge(again, port.now_s) is ADMITTED


def test_a_node_that_is_lost_is_followed_by_another() -> None:
    # GIVEN a node that is not heard any more WHEN another one has its ranks THEN it is taken
    port = Port()
    port.hear(4.0, own={"ranks": [0, 1]}, lost={"ranks": [2, 3]})
    assert port.hear(10.5, own={"ranks": [0, 1]}, spare={"ranks": [2, 3], "pid": 700})["spare"] is ADMITTED


def test_ranks_that_have_not_met_wait_while_their_numbers_are_taken() -> None:
    port = Port()
    stray = {"ranks": [1], "met_s": 0.0}
    assert port.hear(9.0, own={"ranks": [0, 1]}, stray=stray) == {"own": ADMITTED, "stray": HELD}


def test_what_was_taken_of_another_job_is_forgotten() -> None:
    # GIVEN an analyzer that has taken ranks of an agent before its own came
    analyzer = Analyzer(AnalyzerConfig(), JOB, 0.0, is_live=True)
    analyzer.tick(0.0)
    analyzer.feed(batch("stray", [2, 3], at_s=1.0), 1.0)
    assert analyzer.store.ranks.present.tolist() == [False, False, True, True]
    # WHEN these say something else
    for half in range(4, 16):
        analyzer.feed(batch("own", [0, 1], at_s=half / 2, world=2), half / 2)
        analyzer.feed(batch("stray", [2, 3], at_s=half / 2), half / 2)
    # THEN it is sent away, and of its ranks nothing is known
    (order,) = analyzer.orders("stray")
    assert isinstance(order, Leave)
    assert order.because.fact == "world_size"
    assert analyzer.store.ranks.present.tolist() == [True, True, False, False]
    assert not any(isinstance(order, Leave) for order in analyzer.orders("own"))
