"""The timed training job: order of its blocks, the switch, and what counts as observed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from whichrank.sensors import c10d
from whichrank.testbed.bench.overhead_step import blocks_of
from whichrank.testbed.bench.step_job import Plan, Switch, cpu_s, order_of


def state_of(pid: int) -> str:
    content = Path(f"/proc/{pid}/stat").read_text()
    return content[content.rfind(")") + 2]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_each_pair_has_one_of_each_in_random_order() -> None:
    order = order_of(100)
    pairs = [tuple(order[i : i + 2]) for i in range(0, 200, 2)]
    assert set(pairs) == {(True, False), (False, True)}
    assert 30 <= pairs.count((True, False)) <= 70
    assert order == order_of(100)


def test_blocks_are_sorted_by_pair() -> None:
    assert blocks_of([True, False, False, True], [1, 2, 3, 4]) == ([2, 3], [1, 4])


def test_pair_of_the_same_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="blocks 2 and 3 are both off"):
        blocks_of([True, False, False, False], [1, 2, 3, 4])


def test_switch_stops_the_observer_and_continues_it(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a rank 0 with one process to stop
    said: list[bool] = []
    monkeypatch.setattr(c10d, "observe", said.append)
    with Switch(Plan(result="", switch=True, observers=(sleeper.pid,)), rank=0) as switch:
        # WHEN it is switched off, twice
        switch.turn(False)
        switch.turn(False)
        deadline_s = time.monotonic() + 60
        while state_of(sleeper.pid) != "T" and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert state_of(sleeper.pid) == "T"
    # THEN the sensor was reported once, and at the end nothing is left stopped
    assert said == [False]
    while state_of(sleeper.pid) == "T" and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert state_of(sleeper.pid) != "T"


def test_other_ranks_stop_nobody(sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c10d, "observe", lambda on: None)
    with Switch(Plan(result="", switch=True, observers=(sleeper.pid,)), rank=1) as switch:
        switch.turn(False)
        time.sleep(0.05)
        assert state_of(sleeper.pid) != "T"


def test_cpu_time_of_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + 60
    while (used_s := cpu_s(sleeper.pid)) == 0 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert 0 < used_s < 5
