"""How stacks are printed: the user's own line first, frames of packages folded unless they are asked for."""

from __future__ import annotations

import pytest

from whichrank.model.telemetry import Stack
from whichrank.ring.folder import JobFolder
from whichrank.surface.cli import main
from whichrank.surface.run import stacks_of_job
from whichrank.surface.run.stacks_of_job import RankStacks

PACKAGES = "/venv/lib/python3.11/site-packages"
FRAMES = [
    f"all_reduce ({PACKAGES}/torch/distributed/distributed_c10d.py:2810)",
    f"wrapper ({PACKAGES}/torch/distributed/c10d_logger.py:81)",
    "reduce_loss (/home/me/train.py:8)",
    f"_call_impl ({PACKAGES}/torch/nn/modules/module.py:1786)",
    "main (/home/me/train.py:18)",
    "<module> (/home/me/train.py:20)",
]
POOL = ["wait (/usr/lib/python3.11/threading.py:320)", "get (/usr/lib/python3.11/queue.py:171)"]


@pytest.fixture(autouse=True)
def _a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = [Stack("MainThread", True, False, FRAMES), Stack("pool", False, False, POOL)]
    found = [RankStacks(rank=3, pid=12, state="sleeping", stacks=stacks, job="job-1")]
    monkeypatch.setattr(stacks_of_job, "running_jobs", lambda _name: [JobFolder.__new__(JobFolder)])
    monkeypatch.setattr(stacks_of_job, "stacks_of", lambda _folder, rank: found)
    monkeypatch.setattr(stacks_of_job, "unread_rings", lambda _folder: [])


def test_own_line_stands_first_and_packages_are_folded(capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN a rank whose own code calls torch WHEN its stack is printed
    assert main(["stacks"]) == 0
    # THEN the user's line stands first, and what it calls in packages takes one line
    assert capfd.readouterr().out.splitlines() == [
        "rank 3 (pid 12, sleeping)",
        "  MainThread",
        "    reduce_loss (/home/me/train.py:8)",
        f"      in it: all_reduce ({PACKAGES}/torch/distributed/distributed_c10d.py:2810), 2 frames of torch",
        "      ... 1 frame of torch",
        "    main (/home/me/train.py:18)",
        "    <module> (/home/me/train.py:20)",
        "  pool",
        "    wait (/usr/lib/python3.11/threading.py:320)",
        "      ... 1 more (--all-frames)",
        "",
    ]


def test_all_frames_are_printed_where_they_are_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["stacks", "--all-frames"]) == 0
    lines = [line.strip() for line in capfd.readouterr().out.splitlines()]
    assert [line for line in lines if "(/" in line] == [*FRAMES, *POOL]
