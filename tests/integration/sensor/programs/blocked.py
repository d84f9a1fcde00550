"""One way of blocking after the other; three ranks, of which the last is late until the test opens the gate.

The late rank sleeps in Python, so it is in no operation. `test_blocked.py` looks at the rings while the others block.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("gloo")
rank = dist.get_rank()
late = rank == 2
folder = Path(os.environ["FOLDER"])
pair = dist.new_group([0, 1])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))


def gate(name: str) -> None:
    while late and not (folder / name).exists():
        time.sleep(0.01)


def compiled(x: torch.Tensor) -> torch.Tensor:
    return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1


compiled = torch.compile(compiled, backend="aot_eager")
compiled(torch.ones(31))

gate("wait")
dist.all_reduce(torch.ones(21))

gate("wait_tensor")
functional.wait_tensor(functional.all_reduce(torch.ones(22), "max", dist.group.WORLD))

gate("compiled")
compiled(torch.ones(31))

gate("monitored_barrier")
dist.monitored_barrier()

gate("recv")
if late:
    dist.send(torch.ones(23), dst=0, tag=7)
    dist.recv(torch.empty(24), src=1)
elif rank == 0:
    dist.recv(torch.empty(23), src=2, tag=7)
else:
    dist.send(torch.ones(24), dst=2)

gate("backward")
model(torch.ones(2, 4)).sum().backward()

gate("polled")
polled = dist.all_reduce(torch.ones(25), async_op=True)
while not polled.is_completed():
    time.sleep(0.01)

# Posted long before it is needed: in flight, and blocks nobody. Another group goes on meanwhile.
if not late:
    posted = dist.irecv(torch.empty(26), src=2, tag=9)
    ahead = dist.all_reduce(torch.ones(27), async_op=True)
    for _ in range(5):
        dist.all_reduce(torch.ones(28), group=pair)
    while not (folder / "posted").exists():
        time.sleep(0.01)
gate("posted")
if late:
    for receiver in (0, 1):
        dist.send(torch.ones(26), dst=receiver, tag=9)
    dist.all_reduce(torch.ones(27))
else:
    posted.wait()
    ahead.wait()

# Given up without a wait.
if not late:
    dropped = dist.irecv(torch.empty(3), src=1 - rank, tag=11)
    del dropped
dist.barrier()
