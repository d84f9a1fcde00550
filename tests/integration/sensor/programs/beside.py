"""A thread with a process group of its own reduces all the time, while training makes a step now and then."""

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
own = dist.new_group()
is_over = torch.zeros(1)


def reduce_beside() -> None:
    while True:
        dist.all_reduce(is_over, op=dist.ReduceOp.MAX, group=own)
        if is_over:  # all have the same now, so none reduces once more than another
            break
        if Path(os.environ["FOLDER"], "enough").exists():
            is_over.fill_(1)


beside = threading.Thread(target=reduce_beside)
beside.start()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
numbers = torch.ones(8, 8)
while True:
    model(numbers).sum().backward()
    optimizer.step()
    Path(os.environ["FOLDER"], f"computes.{dist.get_rank()}").touch()
    time.sleep(0.3)
    Path(os.environ["FOLDER"], f"computes.{dist.get_rank()}").unlink()
    dist.all_reduce(numbers)
    done = is_over.clone()
    dist.all_reduce(done, op=dist.ReduceOp.MIN)
    if done:
        break
beside.join()
dist.destroy_process_group()
sys.exit(0)
