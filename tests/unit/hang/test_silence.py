"""Nothing completes and nobody is blocked: a start that hangs, or a job that is only silent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import CONFIG, Node, analyzer, comm_info, watch

from whichrank.model.incident import Cause, Incident
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import INFLIGHT_REPORTED, ProcessState

LONG_S = CONFIG.hang_timeout_s + 8
PYTHON = "/opt/venv/lib/python3.11"
C10D = f"{PYTHON}/site-packages/torch/distributed/distributed_c10d.py"
MAIN = "<module> (/home/me/train.py:90)"
INIT = [f"_store_based_barrier ({C10D}:1063)", f"init_process_group ({C10D}:1959)", MAIN]
RENDEZVOUS = [
    f"_create_c10d_store ({PYTHON}/site-packages/torch/distributed/rendezvous.py:189)",
    f"init_process_group ({C10D}:1889)",
    MAIN,
]
OWN = ["prepare (/home/me/train.py:12)", MAIN]
IMPORT = [
    f"<module> ({PYTHON}/site-packages/numpy/core.py:3)",
    "_find_and_load (<frozen importlib._bootstrap>:1176)",
    MAIN,
]
EXIT = [f"_shutdown ({PYTHON}/threading.py:1590)"]
TORCH = [f"destroy_process_group ({C10D}:2300)", MAIN]


class Silent(Node):
    """Ranks of one node with stacks, some with an operation in flight that nobody waits on."""

    def __init__(self, stacks: list[list[str]], world: int = 0, flying: tuple[int, ...] = ()) -> None:
        world = world or len(stacks)
        super().__init__("a:1", list(range(len(stacks))), world)
        self.comm(comm_info(7, list(range(world))))
        self.stacks, self.flying = dict(enumerate(stacks)), flying

    def _flights(self) -> np.ndarray[Any, Any]:
        rows = np.zeros(len(self.flying), INFLIGHT_REPORTED)
        rows["rank"], rows["comm"] = self.flying, 7
        rows["row"]["counter"], rows["row"]["kind"], rows["row"]["peer"] = 1, Kind.ALL_REDUCE, -1
        rows["row"]["dtype"], rows["row"]["count"], rows["row"]["t_issue_ns"] = 6, 1024, self.ns(0.0)
        return rows


def said_of(node: Silent, until_s: float = LONG_S) -> list[Incident]:
    return [i for i in watch(analyzer(), node, first_s=0.0, last_s=until_s) if i.severity == "alert"]


def named(said: list[Incident]) -> set[int]:
    return {c.rank for i in said for c in i.culprits}


# ---- is there a hang at all ----------------------------------------------------------------------------------------


def test_operations_in_flight_that_nobody_waits_on_are_an_alert_without_a_name() -> None:
    # GIVEN NCCL, where the host goes on: no rank is blocked, and nothing completes
    said = said_of(Silent([OWN, OWN], flying=(0, 1)))
    assert {i.cause for i in said} == {Cause.UNKNOWN}
    assert not named(said)


def test_a_rank_that_runs_gets_more_time_though_it_gets_little_of_a_core() -> None:
    # GIVEN a machine so busy that a rank that wants to run has used no CPU time
    node = Silent([OWN, OWN], flying=(0, 1))
    node.is_(1, ProcessState.RUNNING)
    assert not said_of(node)
    # BUT not for ever
    node = Silent([OWN, OWN], flying=(0, 1))
    node.is_(1, ProcessState.RUNNING)
    assert said_of(node, CONFIG.busy_factor * CONFIG.hang_timeout_s + 8)


def test_a_rank_that_runs_for_moments_while_it_waits_gives_nobody_more_time() -> None:
    # GIVEN ranks in the rendezvous, one of which is seen to run now and then
    node = Silent([INIT, INIT, OWN, INIT])
    job, said = analyzer(), list[Incident]()
    for step in range(int(2 * (CONFIG.hang_timeout_s + 1))):
        node.is_(0, ProcessState.SLEEPING if step % 3 else ProcessState.RUNNING)
        said += watch(job, node, first_s=step / 2, last_s=step / 2)
    assert named(said) == {2}
    # BUT not where it is seen to run again and again
    node = Silent([INIT, INIT, OWN, INIT])
    node.is_(0, ProcessState.RUNNING)
    assert not said_of(node, CONFIG.hang_timeout_s + 1)


def test_time_in_which_ranks_computed_before_they_came_to_the_rendezvous_is_no_silence() -> None:
    # GIVEN ranks that import for half of the timeout, and wait for each other then
    node = Silent([INIT] * 4)
    job, half_s = analyzer(), CONFIG.hang_timeout_s / 2
    for rank in range(4):
        node.is_(rank, ProcessState.RUNNING)
    watch(job, node, first_s=0.0, last_s=half_s)
    for rank in range(4):
        node.is_(rank, ProcessState.SLEEPING)
    # THEN nothing is said when the timeout is over since the start, but since they wait
    assert not watch(job, node, first_s=half_s + 0.5, last_s=2 * half_s + 2)
    assert watch(job, node, first_s=2 * half_s + 2.5, last_s=3 * half_s + 8)


@pytest.mark.parametrize("init_ns", [0, 1])
def test_ranks_that_are_all_in_their_own_code_are_no_hang(init_ns: int) -> None:
    # GIVEN a job before its first communicator, or after its last operation
    node = Silent([OWN] * 4)
    for rank in range(4):
        node.is_(rank, ProcessState.SLEEPING, init_ns=init_ns)
    assert not said_of(node)


def test_a_rank_that_works_on_after_the_others_have_ended_is_no_hang() -> None:
    node = Silent([OWN] * 4)
    for rank in (1, 2, 3):
        node.is_(rank, ProcessState.GONE, exit_status=0, ended_ns=node.ns(1.0), closed_ns=node.ns(0.9))
    assert not said_of(node)


def test_ranks_that_leave_their_interpreter_slowly_are_no_hang() -> None:
    # GIVEN operations that were never waited for
    node = Silent([EXIT] * 4, flying=(0, 1, 2, 3))
    for rank in range(4):
        node.is_(rank, ProcessState.SLEEPING, closed_ns=node.ns(1.0))
    assert not said_of(node)


def test_words_of_the_rendezvous_in_the_users_code_are_no_rendezvous() -> None:
    mine = [
        "my_store_prepare (/home/me/rendezvous/barrier.py:5)",
        "init_process_group (/home/me/distributed_c10d.py:7)",
        "new_group (/home/me/new_group.py:7)",
    ]
    assert not said_of(Silent([mine, OWN, OWN, OWN]))
    # AND in a job that does wait, it is as good as any other code of the user
    assert named(said_of(Silent([INIT, INIT, INIT, mine]))) == {3}


# ---- who is named --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [INIT, RENDEZVOUS])
def test_the_one_rank_in_its_own_code_is_named_when_most_wait_in_the_rendezvous(waits: list[str]) -> None:
    said = said_of(Silent([waits, waits, OWN, waits]))
    assert named(said) == {2}
    assert {i.cause for i in said} == {Cause.NOT_ENTERED}


def test_a_rank_inside_the_standard_library_or_its_data_loader_is_in_its_own_code() -> None:
    data = [f"_next_data ({PYTHON}/site-packages/torch/utils/data/dataloader.py:700)", MAIN]
    for inner in ([f"read ({PYTHON}/ssl.py:1168)", *OWN], data):
        assert named(said_of(Silent([INIT, INIT, inner, INIT]))) == {2}


def test_nobody_is_named_when_as_many_are_out_as_wait() -> None:
    for stacks in ([INIT, OWN, OWN, OWN], [INIT, INIT, OWN, OWN], [INIT, OWN]):
        said = said_of(Silent(stacks))
        assert {i.cause for i in said} == {Cause.UNKNOWN}
        assert not named(said)
        assert {c.rank for c in said[-1].candidates} == {r for r, s in enumerate(stacks) if s is OWN}


@pytest.mark.parametrize("elsewhere", [IMPORT, EXIT, TORCH, []])
def test_a_rank_that_comes_or_goes_or_is_in_torch_is_a_candidate_only(elsewhere: list[str]) -> None:
    said = said_of(Silent([INIT, INIT, INIT, elsewhere]))
    assert said
    assert not named(said)


@pytest.mark.parametrize("row", [{"closed_ns": 5}, {"exception_ns": 5}, {"restart_count": 1}])
def test_nobody_is_named_while_the_job_ends_or_is_started_again(row: dict[str, int]) -> None:
    node = Silent([INIT, INIT, INIT, OWN])
    node.is_(0, ProcessState.SLEEPING, **row)
    said = said_of(node)
    assert said
    assert not named(said)


def test_a_rank_with_an_operation_in_flight_is_not_named_for_being_elsewhere() -> None:
    # GIVEN a rank that may wait for its device in `tensor.item()`, which has no frame
    said = said_of(Silent([INIT, INIT, INIT, OWN], flying=(3,)))
    assert said
    assert not named(said)


def test_a_rank_that_never_came_is_named_when_all_others_wait_for_it() -> None:
    assert named(said_of(Silent([INIT] * 3, world=4))) == {3}
    # BUT not when half of the world is missing, or a second rank is elsewhere
    for stacks, world in (([INIT] * 2, 4), ([INIT, INIT, INIT, OWN], 5)):
        said = said_of(Silent(stacks, world=world))
        assert said
        assert not named(said)
