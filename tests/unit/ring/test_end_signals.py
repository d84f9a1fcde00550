"""Signals that ask a job to end, from the run to the agent of its node."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest

from whichrank.agent.node import Node
from whichrank.agent.outbox import Outbox
from whichrank.model.telemetry import VERSION, Batch
from whichrank.ring.end_signals import FILE_NAME, EndSignals, write_end_signal
from whichrank.ring.folder import JobFolder


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder.create("job", owner_pid=os.getpid(), base=tmp_path)


def test_signal_is_read_once_with_its_time(folder: JobFolder) -> None:
    # GIVEN a reader that has found nothing yet WHEN two signals come
    signals = EndSignals(folder.path)
    assert signals.news() == []
    before_ns = time.monotonic_ns()
    write_end_signal(folder.path, signal.SIGINT)
    write_end_signal(folder.path, signal.SIGTERM)
    # THEN both are reported, in order, and once
    reported = signals.news()
    assert [(one.name, one.target) for one in reported] == [("SIGINT", 0), ("SIGTERM", 0)]
    assert before_ns <= reported[0].at_ns <= reported[1].at_ns <= time.monotonic_ns()
    assert signals.news() == []
    write_end_signal(folder.path, signal.SIGHUP)
    assert [one.name for one in signals.news()] == ["SIGHUP"]


def test_the_file_is_small_and_the_users_own_and_goes_with_the_folder(folder: JobFolder) -> None:
    for _ in range(1000):
        write_end_signal(folder.path, signal.SIGINT)
    write_end_signal(folder.path, signal.SIGTERM, 4211)
    status = (folder.path / FILE_NAME).stat()
    assert status.st_size < 5000
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert folder.remove()


@pytest.mark.parametrize(
    "content", [b"15 7\n", b"x 1 0\n", b"2 -1 0\n", b"9 77 0\n", b"999 1 0\n", b"\xff\xfe\n", b"2 17 0"]
)
def test_what_is_no_whole_line_of_ours_is_passed_over(folder: JobFolder, content: bytes) -> None:
    (folder.path / FILE_NAME).write_bytes(content)
    assert EndSignals(folder.path).news() == []


def test_a_folder_that_is_gone_is_no_fault(tmp_path: Path) -> None:
    write_end_signal(tmp_path / "gone", signal.SIGINT)
    assert EndSignals(tmp_path / "gone").news() == []


def test_the_agent_says_it_with_its_next_snapshot(folder: JobFolder) -> None:
    outbox = Outbox()
    node = Node(folder, outbox)
    write_end_signal(folder.path, signal.SIGTERM)
    for _ in range(2):
        node.refresh(deep=False)
    nothing = Batch(VERSION, "job", "a:1", "a", 0, 0, 0, 0, 0)
    assert [(event.kind, event.rank, event.text) for event in outbox.fill(nothing).events] == [
        ("signal", -1, "SIGTERM")
    ]
    node.close()
