"""Data parallel, tensor parallel and a message round the ranks in each iteration; says what came of it.

$ITERATIONS says how many there are.
"""

import hashlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
across = [dist.new_group([0, 2]), dist.new_group([1, 3])]
layers = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
model = DistributedDataParallel(layers, process_group=across[rank % 2])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
numbers = torch.Generator().manual_seed(rank)
taken = torch.zeros(8, 64)
for _ in range(int(os.environ.get("ITERATIONS", "150"))):
    given = torch.randn(8, 64, generator=numbers)
    if rank % 2 == 0:
        dist.send(given, rank + 1)
    else:
        dist.recv(taken, rank - 1)
    shared = (given + taken).clone()
    dist.all_reduce(shared, group=halves[rank // 2])
    model(shared).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
said = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
Path(os.environ["FOLDER"], f"said.{rank}").write_text(said)
dist.destroy_process_group()
sys.exit(0)
