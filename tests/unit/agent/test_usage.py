"""What the node gives to a process, read from the kernel; control groups of both versions."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from whichrank.agent.usage import Host, UsageWatch


def test_a_sample_of_this_process() -> None:
    # GIVEN a process that computes for a while
    watch = UsageWatch(os.getpid(), Host())
    before = watch.sample()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass

    # THEN it is seen to have run, on the cores that it may use
    after = watch.sample(7)
    assert after.cpu_ns > before.cpu_ns
    assert after.delay_ns >= before.delay_ns
    assert after.allowed_cores == len(os.sched_getaffinity(0))
    assert after.major_faults == 7
    assert after.limit_cores > 0
    assert not math.isnan(after.limit_cores)


def test_a_process_that_is_gone_is_all_zeros() -> None:
    gone = UsageWatch(2**22 + 1, Host()).sample()
    assert (gone.cpu_ns, gone.delay_ns, gone.allowed_cores, gone.read_bytes) == (0, 0, 0, 0)


def test_what_the_hypervisor_took(tmp_path: Path) -> None:
    # GIVEN ticks of all cores together: worked, and stolen
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 20 30 2 2 5 6 300 0 0\ncpu0 1 0 1 2 2 0 1 9 0 0\n")
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    assert Host(stat).cpu_ns() == (int(71 * tick_ns), int(300 * tick_ns))
    # AND where it is not told, or the file is not as it should be, it is none
    for text in ("cpu  1 0 1\n", "cpu  1 2 3 4 5 6 7 eight\n", ""):
        stat.write_text(text)
        assert Host(stat).cpu_ns() == (0, 0)
    assert Host(tmp_path / "none").cpu_ns() == (0, 0)
