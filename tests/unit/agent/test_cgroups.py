"""Control groups of both versions: where they are and what they say."""

from __future__ import annotations

from pathlib import Path

from whichrank.agent.cgroups import NO_LIMIT, CgroupMounts, limit_of, memory_kills_of, throttled_ns_of

V1_AND_V2 = """
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:31 / /cg/memory rw,relatime - cgroup cgroup rw,memory
32 31 0:29 / /cg/cpu\\040and rw,relatime - cgroup cgroup rw,cpuacct,cpu
41 31 0:38 / /cg/unified rw,relatime - cgroup2 cgroup2 rw
"""


def test_the_groups_of_a_process_are_found_under_both_versions() -> None:
    # GIVEN mounts of both versions WHEN a process is in a group of v1 THEN that counts, else the one of v2
    mounts = CgroupMounts(V1_AND_V2)
    assert mounts.groups_of("2:cpuacct,cpu:/a/b\n0::/x\n", "cpu") == [
        Path("/cg/cpu and/a/b"), Path("/cg/cpu and/a"), Path("/cg/cpu and"),
    ]  # fmt: skip
    assert mounts.groups_of("2:memory:/a\n0::/x\n", "memory") == [Path("/cg/memory/a"), Path("/cg/memory")]
    assert mounts.groups_of("0::/x\n", "memory") == [Path("/cg/unified/x"), Path("/cg/unified")]
    only_v2 = CgroupMounts("41 31 0:38 / /cg rw - cgroup2 cgroup2 rw")
    assert only_v2.groups_of("0::/x/y\n", "cpu") == [Path("/cg/x/y"), Path("/cg/x"), Path("/cg")]
    assert only_v2.groups_of("", "cpu") == []
    assert CgroupMounts("").groups_of("0::/x\n", "cpu") == []
    in_container = CgroupMounts("41 31 0:38 /pod/x /cg rw - cgroup2 cgroup2 rw")
    assert in_container.groups_of("0::/pod/x/y\n", "cpu") == [Path("/cg/y"), Path("/cg")]
    assert CgroupMounts("no such line\n1 2 3 - cgroup").groups_of("0::/x", "memory") == []


def test_a_group_that_cannot_be_read_from_here_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    mounts = CgroupMounts(f"41 31 0:38 / {tmp_path} rw - cgroup2 cgroup2 rw")
    assert not mounts.hides("0::/seen\n", "cpu")
    assert mounts.hides("0::/unseen\n", "cpu")
    # AND where nothing is mounted, only a process in no group of its own is known to be free
    assert CgroupMounts("").hides("2:cpu:/a\n0::/\n", "cpu")
    assert not CgroupMounts("").hides("2:cpu:/\n0::/\n", "cpu")
    assert not CgroupMounts("").hides("", "cpu")


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


def test_kills_of_both_versions(tmp_path: Path) -> None:
    assert memory_kills_of(tmp_path) is None
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert memory_kills_of(tmp_path) == 3
    (tmp_path / "memory.events").write_text("low 0\noom 9\noom_kill 4\noom_group_kill 0\n")
    assert memory_kills_of(tmp_path) == 4
    (tmp_path / "memory.events").write_text("oom_kill\noom_kill many\n\n")
    assert memory_kills_of(tmp_path) == 3
