"""Kills for lack of memory: what the kernel's count says of an end by SIGKILL."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.agent.memory import LATELY_NS, POLL_EVERY_NS, GroupKills, OomWatch

S = 1_000_000_000


@pytest.fixture
def vmstat(tmp_path: Path) -> Path:
    path = tmp_path / "vmstat"
    report(path, 3)
    return path


def report(path: Path, kills: int) -> None:
    path.write_text(f"nr_free_pages 17\noom_kill {kills}\noom_killed_not 99\n")


def test_count_that_stands_is_no_kill(vmstat: Path) -> None:
    watch = OomWatch(vmstat)
    for second in range(20):
        watch.poll(second * S)
    assert not watch.rose_lately()


def test_count_that_rose_since_the_last_snapshot(vmstat: Path) -> None:
    watch = OomWatch(vmstat)
    watch.poll(10 * S)
    report(vmstat, 4)
    assert watch.rose_lately()


def test_end_may_come_some_seconds_after_the_kill(vmstat: Path) -> None:
    # GIVEN a kill that a snapshot has already seen, since a large process ends slowly
    watch = OomWatch(vmstat)
    watch.poll(10 * S)
    report(vmstat, 4)
    for second in range(11, 14):
        watch.poll(second * S)
    # THEN it explains an end now, and none much later
    assert watch.rose_lately()
    for second in range(14, 14 + LATELY_NS // S + 2 * POLL_EVERY_NS // S):
        watch.poll(second * S)
    assert not watch.rose_lately()


def test_kernel_that_does_not_say(tmp_path: Path) -> None:
    watch = OomWatch(tmp_path / "none")
    watch.poll(S)
    assert watch.count() == 0
    assert not watch.rose_lately()


def test_group_that_counts_no_kill(tmp_path: Path) -> None:
    # GIVEN a group that has seen a kill before
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 1\n")
    group = GroupKills()
    assert not group.none()  # not known yet
    group.enter([tmp_path])
    assert group.none()
    # WHEN it counts another, or is removed THEN it says so no more
    events.write_text("oom_kill 2\n")
    assert not group.none()
    events.unlink()
    assert not group.none()
