"""Expert parallelism: tokens go to their experts and back, in numbers that differ each time. One rank leaves one out.

Usage: exchange.py DEVIANT
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

WIDTH = 8
deviant = int(sys.argv[1])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
routing = torch.Generator().manual_seed(3)
for step in range(100_000):
    for layer in range(3):
        sent = torch.randint(1, 40, (world, world), generator=routing)
        for to in (sent, sent.T):
            if step == 40 and layer == 1 and to is sent and rank == deviant:
                continue
            give, get = to[rank].tolist(), to[:, rank].tolist()
            dist.all_to_all_single(torch.empty(sum(get), WIDTH), torch.ones(sum(give), WIDTH), get, give)
    time.sleep(0.02)
