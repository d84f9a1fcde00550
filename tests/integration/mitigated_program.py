"""Gradient accumulation; rank 1 takes three times as long for a microbatch while $FOLDER/slow is there.

At its end $FOLDER/ended has the iterations, those with uneven shares, and how many microbatches all ranks computed.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from whichrank.torch import Balancer

FOLDER = Path(os.environ["FOLDER"])
MICROBATCH_S = 0.02

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
balancer = Balancer(6)
stop = torch.zeros(1)
iterations = uneven = computed = 0
while not stop:
    factor = 3 if dist.get_rank() == 1 and (FOLDER / "slow").exists() else 1
    iterations += 1
    for _ in balancer.iteration(model):
        computed += 1
        time.sleep(factor * MICROBATCH_S)
        (model(torch.ones(2, 8)).square().mean() / 6).backward()
    uneven += balancer.share[1] != 6
    optimizer.step()
    optimizer.zero_grad()
    stop += dist.get_rank() == 0 and (FOLDER / "stop").exists()
    dist.all_reduce(stop)
total = torch.tensor(computed)
dist.all_reduce(total)
if dist.get_rank() == 1:
    (FOLDER / "ended").write_text(f"{iterations} {uneven} {int(total)}")
dist.destroy_process_group()
sys.exit(0)
