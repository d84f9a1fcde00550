"""Who sleeps with the GIL, and who only sleeps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rank_process import eventually

from whichrank.agent.processes import read_process, wait_channel
from whichrank.agent.stacks import read_stacks, sleeping_holder
from whichrank.model.telemetry import ProcessState, WaitChannel

pytestmark = pytest.mark.integration
HEAD = "import ctypes, queue, threading, time; print(flush=True);"
BUSY = "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start();"


@contextmanager
def program(code: str, state: ProcessState = ProcessState.SLEEPING) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", HEAD + code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            eventually(lambda: read_process(process.pid).state == state)
            yield process.pid
        finally:
            process.kill()


def test_sleep_in_c_with_the_gil() -> None:
    with program("ctypes.PyDLL(None).sleep(60)") as pid:
        eventually(lambda: wait_channel(pid, pid, ProcessState.SLEEPING) == WaitChannel.SLEEP)
        main = read_stacks(pid)[0]
        assert (main.main, main.holds_gil, main.asleep) == (True, True, True)
        # py-spy has interrupted the sleep: it still reads as one
        assert wait_channel(pid, pid, ProcessState.SLEEPING) == WaitChannel.SLEEP


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(60)",
        "lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "queue.Queue().get()",
        "threading.Event().wait()",
        "[time.sleep(0.001) for _ in iter(int, 1)]",
    ],
)
def test_sleep_without_the_gil(code: str) -> None:
    with program(code) as pid:
        assert not any(stack.asleep for stack in read_stacks(pid))
        assert sleeping_holder(pid) is None


def test_busy_loop_holds_it_awake() -> None:
    with program("[None for _ in iter(int, 1)]", ProcessState.RUNNING) as pid:
        eventually(lambda: read_stacks(pid)[0].holds_gil)  # it may still be on its way back from `print`
        main = read_stacks(pid)[0]
        assert (main.holds_gil, main.asleep) == (True, False)
        assert sleeping_holder(pid) is None


def test_busy_thread_beside_a_main_thread_that_sleeps() -> None:
    with program(BUSY + "time.sleep(60)") as pid:
        assert not any(stack.asleep for stack in read_stacks(pid))
        assert sleeping_holder(pid) is None


def test_process_that_is_gone() -> None:
    with program("time.sleep(60)") as pid:
        pass
    assert sleeping_holder(pid) is None
