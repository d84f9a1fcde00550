"""What the node gives to a process, read from the kernel; control groups of both versions."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from whichrank.agent.processes import io_of, read_process
from whichrank.agent.usage import Host, Usage, UsageWatch

STAT = "cpu  10 20 30 2 2 5 6 300 0 0\ncpu0 1 0 1 2 2 0 1 9 0 0\n"
STALLED = "some avg10=1.00 avg60=0.50 avg300=0.10 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"


def sample(watch: UsageWatch, pid: int) -> Usage:
    return watch.sample(read_process(pid), io_of(pid))


def test_a_sample_of_this_process() -> None:
    # GIVEN a process that computes for a while
    watch = UsageWatch(os.getpid(), Host())
    before = sample(watch, os.getpid())
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass

    # THEN it is seen to have run, on the cores that it may use
    after = sample(watch, os.getpid())
    assert after.cpu_ns > before.cpu_ns
    assert after.delay_ns >= before.delay_ns
    assert after.allowed_cores == len(os.sched_getaffinity(0))
    assert after.limit_cores > 0
    assert not math.isnan(after.limit_cores)


def test_a_process_that_is_gone_is_all_zeros() -> None:
    gone = sample(UsageWatch(2**22 + 1, Host()), 2**22 + 1)
    assert (gone.cpu_ns, gone.delay_ns, gone.allowed_cores, gone.read_bytes, gone.clock_mhz) == (0, 0, 0, 0, 0.0)


def node(folder: Path) -> Host:
    """A new look at a node whose /proc and cores are here."""
    return Host(folder, folder / "cores")


def test_what_the_hypervisor_took(tmp_path: Path) -> None:
    # GIVEN ticks of all cores together: worked, and stolen
    (tmp_path / "stat").write_text(STAT)
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    assert node(tmp_path).shared()[:2] == (int(71 * tick_ns), int(300 * tick_ns))
    # AND where it is not reported, or the file is not as it should be, it is none
    for text in ("cpu  1 0 1\n", "cpu  1 2 3 4 5 6 7 eight\n", ""):
        (tmp_path / "stat").write_text(text)
        assert node(tmp_path).shared()[:2] == (0, 0)
    assert node(tmp_path / "none").shared() == (0, 0, 0, 0)


def test_what_the_node_waited_for(tmp_path: Path) -> None:
    # GIVEN microseconds in which somebody waited THEN they are reported in nanoseconds
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "memory").write_text(STALLED % 5)
    (tmp_path / "pressure" / "io").write_text(STALLED % 1_784_796)
    assert node(tmp_path).shared()[2:] == (5000, 1_784_796_000)
    # AND where the file is not as it should be, it is none
    for text in ("", "some avg10=1.00\n", "some total=x\n", "full avg10=0 total=7\n"):
        (tmp_path / "pressure" / "memory").write_text(text)
        assert node(tmp_path).shared().memory_stall_ns == 0


def test_the_clock_of_the_core_that_it_runs_on(tmp_path: Path) -> None:
    place = tmp_path / "cores" / "cpu3" / "cpufreq"
    place.mkdir(parents=True)
    (place / "scaling_cur_freq").write_text("1200000\n")
    assert node(tmp_path).clock_mhz(3) == 1200.0
    assert node(tmp_path).clock_mhz(2) == 0.0
    (place / "scaling_cur_freq").write_text("<unknown>\n")
    assert node(tmp_path).clock_mhz(3) == 0.0


def test_the_core_is_one_of_those_allowed() -> None:
    assert read_process(os.getpid()).core in os.sched_getaffinity(0)
