"""A second group is made after the first step; one rank is in its own code for a while before it."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(8))
if dist.get_rank() == 1:
    print("step 10 ", flush=True)
    time.sleep(100_000)
group = dist.new_group([0, 1, 2, 3])
dist.all_reduce(torch.ones(8), group=group)
