"""The main command on jobs that wait outside of operations or train outside of the main thread."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("outside")))
from watched import Watched

from whichrank.model.incident import Reason

pytestmark = pytest.mark.integration

SERVER = """
import os, torch, torch.distributed as dist
from torch.distributed import rpc
def look_up(x):
    return x + 1
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rpc.init_rpc(f"node{rank}", rank=rank, world_size=world)
if rank < world - 1:
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEET']}", rank=rank, world_size=world - 1)
    for step in range(100000):
        futures = [rpc.rpc_async(f"node{world - 1}", look_up, args=(torch.ones(10),)) for _ in range(2)]
        dist.all_reduce(futures[0].wait() + futures[1].wait())
        if rank == 0 and step % 10 == 0:
            print("step", step, flush=True)
rpc.shutdown()
"""
THREAD = """
import threading, time, torch, torch.distributed as dist
def loop():
    for step in range(100000):
        if step == 30 and dist.get_rank() == 2:
            time.sleep(10000)  # here
        dist.all_reduce(torch.ones(1000))
        time.sleep(0.02)
dist.init_process_group("gloo")
thread = threading.Thread(target=loop, name="the loop")
thread.start()
while thread.is_alive():
    time.sleep(0.5)
"""


def torchrun(folder: Path, code: str, ranks: int) -> Watched:
    folder.mkdir(exist_ok=True)
    (folder / "job.py").write_text(code)
    command = ["torchrun", "--nproc-per-node", str(ranks), str(folder / "job.py")]
    return Watched(folder, command, ranks, MEET=str(folder / "meet"))


def test_a_stopped_parameter_server_is_named_and_not_those_that_wait_for_it(tmp_path: Path) -> None:
    # GIVEN two trainers that call a server, which makes no process group
    with torchrun(tmp_path, SERVER, 3) as job:
        job.until(lambda: "step 20\n" in job.said("stdout"), "its steps")

        # WHEN somebody stops the server
        os.kill(job.pids()[2], signal.SIGSTOP)
        job.until(lambda: bool(job.alerts()), "an alert")

        # THEN it is named for that, and nobody else ever is
        assert [c.rank for c in job.alerts()[0].culprits] == [2]
        assert job.alerts()[0].reason == Reason.STOPPED
        assert {c.rank for word in job.words() for c in word.culprits} == {2}
        assert job.alerts()[0].victims.ranks == (0, 1)


def test_the_line_is_that_of_the_thread_that_trains(tmp_path: Path) -> None:
    # GIVEN a job whose loop runs in a thread, and rank 2 sleeps in it
    with torchrun(tmp_path, THREAD, 3) as job:
        job.until(lambda: any(word.culprits for word in job.words()), "a name")
        word = next(word for word in job.words() if word.culprits)

        # THEN the verdict shows its line, and says which thread it is
        here = 1 + next(at for at, line in enumerate(THREAD.splitlines()) if "# here" in line)
        assert [c.rank for c in word.culprits] == [2]
        assert f"job.py:{here}" in word.culprits[0].why
        assert any(fact.what == "thread 'the loop' at" for fact in word.evidence)
