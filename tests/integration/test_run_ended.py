"""Real jobs that somebody interrupts, and real jobs whose ranks raise: who is named, and in which words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from whichrank.model.incident import Incident, decode_incident
from whichrank.testbed.demo.ports import free_port
from whichrank.verdict.words.text import headline, paragraph

pytestmark = pytest.mark.integration

RANKS = 3
PATIENCE_S = 120.0
"""Longer than anything takes; it is no claim about speed."""

# Rank 0 starts the others, and kills them when it is interrupted.
LAUNCHES_ITSELF = """
import os, signal, subprocess, sys, time, torch, torch.distributed as dist
started = []
if "RANK" not in os.environ:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], WORLD_SIZE="3", RANK="0")
    started = [subprocess.Popen([sys.executable, *sys.argv], env=dict(os.environ, RANK=str(k))) for k in (1, 2)]
try:
    dist.init_process_group("gloo")
    for step in range(100000):
        dist.all_reduce(torch.ones(100))
        time.sleep(0.02)
        if step == 20 and os.environ["RANK"] == "0":
            print("UNDER WAY", os.getpid(), flush=True)
except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(0.5)
    for one in started:
        one.kill()
    sys.exit(1)
"""

RAISES = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
def train(rank, port, which):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="3")
    dist.init_process_group("gloo")
    for step in range(60):
        dist.all_reduce(torch.ones(100))
        if step == 50 and which in ("all", str(rank)):
            {}["missing of rank %d" % rank]
if __name__ == "__main__":
    mp.spawn(train, (sys.argv[1], sys.argv[2]), nprocs=3)
"""

SPAWNS = """
import os, sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp
def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="3")
    dist.init_process_group("gloo")
    for step in range(100000):
        dist.all_reduce(torch.ones(100))
        time.sleep(0.02)
        if step == 20 and rank == 2:
            print("UNDER WAY", os.getpid(), flush=True)
if __name__ == "__main__":
    try:
        mp.spawn(train, (sys.argv[1],), nprocs=3)
    finally:
        open("over", "w").close()
"""


class Run:
    """A script under `whichrank run`, in a session and process group of its own."""

    def __init__(self, folder: Path, script: str, *arguments: str) -> None:
        self.folder = folder
        (folder / "train.py").write_text(script)
        port = str(free_port())
        job = [sys.executable, "train.py", port, *arguments]
        with (folder / "stdout").open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "whichrank", "run", "--output", "out", "--", *job],
                cwd=folder,
                env={**os.environ, "WHICHRANK_SHM": str(folder / "shm")},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def under_way(self) -> int:
        """Wait until it is; the pid that the script says."""
        deadline_s = time.monotonic() + PATIENCE_S
        while b"\n" not in (said := (self.folder / "stdout").read_bytes()):
            assert self.process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        time.sleep(1.0)  # an agent looks for new ranks twice a second
        return int(said.split()[2])

    def agents(self) -> list[int]:
        """Pids of its agents."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"\0agent\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def incidents(self) -> list[Incident]:
        """What was found, each incident as it was said last, once all has ended."""
        self.process.wait(PATIENCE_S)
        path = self.folder / "out" / "incidents.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return list({found.id: found for found in map(decode_incident, lines)}.values())


@pytest.mark.parametrize(
    "interrupt",
    [
        lambda run, _: os.killpg(run.process.pid, signal.SIGINT),
        lambda run, _: run.process.send_signal(signal.SIGINT),
        lambda run, _: run.process.send_signal(signal.SIGTERM),
        lambda _, rank_0: os.kill(rank_0, signal.SIGINT),
        lambda _, rank_0: os.kill(rank_0, signal.SIGTERM),
    ],
    ids=["SIGINT-group", "SIGINT-run", "SIGTERM-run", "SIGINT-rank-0", "SIGTERM-rank-0"],
)
def test_a_trainer_that_is_interrupted_leaves_nobody_to_name(
    interrupt: Callable[[Run, int], None], tmp_path: Path
) -> None:
    # GIVEN a healthy job whose rank 0 has started the others WHEN it is asked to end THEN no rank is named
    run = Run(tmp_path, LAUNCHES_ITSELF)
    try:
        interrupt(run, run.under_way())
        assert run.incidents() == []
    finally:
        run.process.kill()


def test_all_ranks_raise_the_same(tmp_path: Path) -> None:
    found = Run(tmp_path, RAISES, "all").incidents()
    assert [(one.severity, one.culprits) for one in found] == [("alert", ())]
    assert "all 3 ranks raised KeyError" in headline(found[0])
    assert headline(found[0]).endswith(" at train.py:9; no rank differs")


def test_an_exception_that_torch_catches_is_reported_with_its_text_and_line(tmp_path: Path) -> None:
    found = Run(tmp_path, RAISES, "2").incidents()
    assert [[culprit.rank for culprit in one.culprits] for one in found] == [[2]]
    assert "KeyError: 'missing of rank 2', at " in paragraph(found[0])
    assert "train.py:9" in paragraph(found[0])


FORKS = """
import multiprocessing as mp, sys, torch, torch.distributed as dist
def train(rank, port):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + port, rank=rank, world_size=2)
    for _ in range(5):
        dist.all_reduce(torch.ones(2))
ranks = [mp.get_context("fork").Process(target=train, args=(rank, sys.argv[1])) for rank in range(2)]
for one in ranks:
    one.start()
for one in ranks:
    one.join()
"""


def test_ranks_that_are_forked_and_end_in_order_have_not_failed(tmp_path: Path) -> None:
    # GIVEN ranks that `multiprocessing` forks, and ends by `os._exit` WHEN all have done their work
    script = tmp_path / "train.py"
    script.write_text(FORKS)
    run = [sys.executable, "-m", "whichrank", "run", "--output", str(tmp_path / "out"), "--", sys.executable]
    done = subprocess.run([*run, str(script), str(free_port())], capture_output=True, text=True, check=True)
    # THEN nothing is said of them
    assert "watched 2 ranks; no alert" in done.stderr, done.stderr


def test_a_death_that_a_late_agent_sees_together_with_what_followed_is_named(tmp_path: Path) -> None:
    # GIVEN an agent that gets no time WHEN a rank is killed, and its launcher has ended the others for it
    run = Run(tmp_path, SPAWNS)
    try:
        killed, (agent,) = run.under_way(), run.agents()
        os.kill(agent, signal.SIGSTOP)
        os.kill(killed, signal.SIGKILL)
        deadline_s = time.monotonic() + PATIENCE_S
        while not (tmp_path / "over").exists() and time.monotonic() < deadline_s:
            time.sleep(0.1)
        os.kill(agent, signal.SIGCONT)
        # THEN that rank is named all the same
        (found,) = run.incidents()
        assert [(culprit.rank, found.cause) for culprit in found.culprits] == [(2, "process_exit")]
    finally:
        run.process.kill()
