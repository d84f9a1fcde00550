"""Groups with timeouts of their own, which are then changed in every way; two ranks, of which the last is late.

The late rank sleeps in Python until the test opens the gate. `test_timeouts.py` looks at the rings meanwhile.
"""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo", timeout=timedelta(seconds=1001))
rank, c10d = dist.get_rank(), dist.distributed_c10d
late = rank == 1
folder = Path(os.environ["FOLDER"])


def gate(name: str) -> None:
    while late and not (folder / name).exists():
        time.sleep(0.01)


def new_group(desc: str, seconds: float) -> dist.ProcessGroup:
    return dist.new_group([0, 1], timeout=timedelta(seconds=seconds), group_desc=desc)


def backend_of(group: dist.ProcessGroup) -> dist.Backend:
    return group._get_backend(torch.device("cpu"))


def times_out(blocks: Callable[[], object]) -> bool:
    try:
        blocks()
    except RuntimeError as error:
        return "Timed out" in str(error)
    return False


mesh = init_device_mesh("cpu", (1, 1, 2), mesh_dim_names=("pp", "dp", "tp"))  # tp is the default group
kept = new_group("KEPT", 1002)
by_function, by_method = new_group("FUNCTION", 1003), new_group("METHOD", 1004)
by_backend, by_default = new_group("BACKEND", 1005), new_group("DEFAULT", 1006)
posted = dist.all_reduce(torch.ones(20), async_op=True) if not late else None  # before the change

# As torchtitan does after the first step; None is the default group.
for group in (None, by_function, mesh.get_group("dp")):
    c10d._set_pg_timeout(timedelta(seconds=2001), group)
by_method.set_timeout(timedelta(seconds=2004))
backend_of(by_backend).set_timeout(timedelta(seconds=2005))
backend_of(by_default)._set_default_timeout(timedelta(days=365))

gate("default")
dist.all_reduce(torch.ones(20)) if late else posted.wait()
dist.all_reduce(torch.ones(21))
gate("function")
dist.all_reduce(torch.ones(22), group=by_function)
gate("mesh")
dist.all_reduce(torch.ones(23), group=mesh.get_group("tp"))
gate("own")
dist.barrier(group=by_function, timeout=timedelta(seconds=3001))  # an operation with a timeout of its own
gate("send")
if late:
    dist.send(torch.ones(24), dst=0, group=by_function)
else:
    dist.recv(torch.empty(24), src=1, group=by_function)

# What torch makes of it: an all-reduce ends after the new timeout, a receive after the one its group was made with.
shortened, lengthened = new_group("SHORTENED", 1007), new_group("LENGTHENED", 2)
c10d._set_pg_timeout(timedelta(seconds=1), shortened)
c10d._set_pg_timeout(timedelta(seconds=1008), lengthened)
if not late:
    assert times_out(lambda: dist.all_reduce(torch.ones(25), group=shortened))
    assert times_out(lambda: dist.recv(torch.empty(26), src=1, group=lengthened))
    (folder / "timed out").touch()
while not (folder / "timed out").exists():
    time.sleep(0.01)
