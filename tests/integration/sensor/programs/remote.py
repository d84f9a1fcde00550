"""Remote calls of every kind, from rank 0 to rank 1, whose function waits until the test opens the gate.

No process group is made. `test_remote.py` looks at the ring of rank 0 while it waits.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch.distributed import autograd, rpc

folder = Path(os.environ["FOLDER"])
rank = int(os.environ["RANK"]) if len(sys.argv) < 2 else int(sys.argv[1])


def answer(gate: str, x: torch.Tensor) -> torch.Tensor:
    while not (folder / gate).exists():
        time.sleep(0.01)
    return x * 2


class Answers:
    def answer(self, call: str, reference: torch.Tensor) -> torch.Tensor:
        return answer(call, reference)


def call(kind: str) -> None:
    one = torch.ones(3, requires_grad=True)
    if kind == "sync":
        rpc.rpc_sync("node1", answer, args=(kind, one))
    elif kind == "async":
        rpc.rpc_async(1, answer, args=(kind, one)).wait()
    elif kind == "then":
        rpc.rpc_async(rpc.get_worker_info("node1"), answer, args=(kind, one)).then(lambda f: f.value()).wait()
    elif kind == "all":
        torch.futures.wait_all([rpc.rpc_async("node1", answer, args=(kind, one)) for _ in range(2)])
    elif kind == "to_here":
        rpc.remote("node1", answer, args=(kind, one)).to_here()
    elif kind == "method":
        rpc.remote("node1", Answers).rpc_sync().answer(call=kind, reference=one)
    elif kind == "methods":
        answers = rpc.remote("node1", Answers)
        torch.futures.wait_all([answers.rpc_async().answer(kind, one) for _ in range(2)])


rpc.init_rpc(f"node{rank}", rank=rank, world_size=2)
if rank == 0:
    for kind in ("sync", "async", "then", "all", "to_here", "method", "methods"):
        call(kind)
    with autograd.context() as context:
        (folder / "free").touch()
        loss = rpc.rpc_sync("node1", answer, args=("free", torch.ones(3, requires_grad=True))).sum()
        autograd.backward(context, [loss])
    assert torch.futures.wait_all([]) == []
    done = torch.futures.Future()
    done.set_result(1)
    assert done.wait() == 1
rpc.shutdown()
