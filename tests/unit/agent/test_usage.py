"""What the node gives to a process, read from the kernel; control groups of both versions."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from whichrank.agent.usage import NO_LIMIT, CpuMounts, UsageWatch, limit_of, throttled_ns_of

V1_AND_V2 = """
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /cg/cpu\\040and rw,relatime - cgroup cgroup rw,cpuacct,cpu
41 31 0:38 / /cg/unified rw,relatime - cgroup2 cgroup2 rw
"""


def test_the_groups_of_a_process_are_found_under_both_versions() -> None:
    # GIVEN mounts of both versions WHEN a process is in a group of v1 THEN that counts, else the one of v2
    mounts = CpuMounts(V1_AND_V2)
    assert mounts.groups_of("2:cpuacct,cpu:/a/b\n0::/x\n") == [
        Path("/cg/cpu and/a/b"), Path("/cg/cpu and/a"), Path("/cg/cpu and"),
    ]  # fmt: skip
    only_v2 = CpuMounts("41 31 0:38 / /cg rw - cgroup2 cgroup2 rw")
    assert only_v2.groups_of("0::/x/y\n") == [Path("/cg/x/y"), Path("/cg/x"), Path("/cg")]
    assert only_v2.groups_of("") == []
    assert CpuMounts("").groups_of("0::/x\n") == []
    assert CpuMounts("no such line\n1 2 3 - cgroup").groups_of("0::/x") == []


def test_limits_of_both_versions(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert limit_of(tmp_path) == 0.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert limit_of(tmp_path) == NO_LIMIT
    old = tmp_path / "old"
    old.mkdir()
    assert limit_of(old) == NO_LIMIT
    (old / "cpu.cfs_quota_us").write_text("250000\n")
    (old / "cpu.cfs_period_us").write_text("100000\n")
    assert limit_of(old) == 2.5
    (old / "cpu.cfs_quota_us").write_text("-1\n")
    assert limit_of(old) == NO_LIMIT


def test_throttled_time_of_both_versions(tmp_path: Path) -> None:
    assert throttled_ns_of(tmp_path) == 0
    (tmp_path / "cpu.stat").write_text("nr_periods 3\nnr_throttled 2\nthrottled_time 123456789\n")
    assert throttled_ns_of(tmp_path) == 123456789
    (tmp_path / "cpu.stat").write_text("usage_usec 9\nthrottled_usec 1500\n")
    assert throttled_ns_of(tmp_path) == 1_500_000


def test_a_sample_of_this_process() -> None:
    # GIVEN a process that computes for a while
    watch = UsageWatch(os.getpid(), CpuMounts.here())
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
    gone = UsageWatch(2**22 + 1, CpuMounts.here()).sample()
    assert (gone.cpu_ns, gone.delay_ns, gone.allowed_cores, gone.read_bytes) == (0, 0, 0, 0)
