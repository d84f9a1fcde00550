"""Which thread of a rank is shown."""

from __future__ import annotations

import pytest

from whichrank.hang.acting import acting_stack, serving_stack
from whichrank.model.telemetry import Stack
from whichrank.store.store import Store

PYTHON = "/usr/lib/python3.11"
OWN = "work (/home/me/train.py:5)"
SLEEPS = "<module> (/home/me/train.py:90)"
JOINS = [f"join ({PYTHON}/threading.py:1119)", SLEEPS]
RESULT = [f"wait ({PYTHON}/threading.py:327)", f"result ({PYTHON}/concurrent/futures/_base.py:451)", SLEEPS]
POOL_IDLE = [f"_worker ({PYTHON}/concurrent/futures/thread.py:81)", f"run ({PYTHON}/threading.py:982)"]


def thread(name: str, tid: int, *frames: str, trains: bool = False) -> Stack:
    return Stack(name, name == "MainThread", False, list(frames), tid=tid, trains=trains)


def shown(*stacks: Stack, tid: int = 0) -> str:
    store = Store()
    store.stacks[0] = (0.0, list(stacks), "")
    found = acting_stack(store, 0, tid)
    assert found is not None
    return found.thread


MAIN = thread("MainThread", 1, SLEEPS)


def test_the_thread_that_issued_the_operation() -> None:
    assert shown(MAIN, thread("loop", 2, OWN), tid=2) == "loop"


def test_the_main_thread_where_it_issued_the_operation_beside_a_busy_one() -> None:
    assert shown(MAIN, thread("prefetch", 2, OWN), tid=1) == "MainThread"


def test_the_main_thread_where_nothing_is_known() -> None:
    assert shown(MAIN, thread("prefetch", 2, OWN)) == "MainThread"


def test_the_thread_of_the_optimizer_where_torch_issues_from_a_thread_without_python() -> None:
    # The backward pass of a GPU model: its thread is in no Python stack.
    assert shown(MAIN, thread("trainer", 2, OWN, trains=True), tid=77) == "trainer"
    assert shown(thread("MainThread", 1, OWN, trains=True), thread("prefetch", 2, OWN), tid=77) == "MainThread"


@pytest.mark.parametrize("waits", [JOINS, RESULT, [SLEEPS]])
def test_the_successor_of_a_thread_that_has_ended(waits: list[str]) -> None:
    assert shown(thread("MainThread", 1, *waits), thread("epoch 2", 3, OWN), tid=2) == "epoch 2"


@pytest.mark.parametrize("waits", [RESULT, [SLEEPS]])
def test_the_thread_of_a_pool_that_works_instead_of_the_one_that_issued_last(waits: list[str]) -> None:
    idle = thread("pool_0", 2, *POOL_IDLE, trains=True)
    assert shown(thread("MainThread", 1, *waits), idle, thread("pool_1", 3, OWN), tid=2) == "pool_1"


def test_the_main_thread_where_two_others_could_be_meant() -> None:
    assert shown(thread("MainThread", 1, *JOINS), thread("a", 3, OWN), thread("b", 4, OWN), tid=2) == "MainThread"


def test_a_thread_of_a_framework_without_own_code_in_the_main_one() -> None:
    library = "main_loop (/opt/venv/lib/python3.11/site-packages/ray/_private/worker.py:900)"
    assert shown(thread("MainThread", 1, library), thread("TrainingThread", 2, OWN)) == "TrainingThread"


def test_who_runs_the_function_of_a_remote_call() -> None:
    store = Store()
    serves = "_run_function (/opt/venv/lib/python3.11/site-packages/torch/distributed/rpc/internal.py:214)"
    held = thread("Dummy-1", 2, f"wait ({PYTHON}/threading.py:327)", OWN, serves)
    store.stacks[0] = (0.0, [MAIN, held], "")
    assert serving_stack(store, 0) is None
    store.stacks[0] = (0.0, [MAIN, held, thread("Dummy-2", 3, OWN, serves)], "")
    assert serving_stack(store, 0) == thread("Dummy-2", 3, OWN, serves)
