"""200 steps of a DDP model and of a hand-made tensor-parallel one; leaves a digest of losses and parameters.

At the end it waits for the gate, so that its ring can be looked at.
"""

import hashlib
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

STEPS = 200

torch.manual_seed(1)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
digest = hashlib.sha256()
halves = dist.new_group(range(size), group_desc="TENSOR_MODEL_PARALLEL_GROUP")

replica = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)))
columns, rows = nn.Linear(16, 32 // size), nn.Linear(32 // size, 4, bias=False)
with torch.no_grad():
    columns.weight.mul_(rank + 1)
parameters = [*replica.parameters(), *columns.parameters(), *rows.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-2)
batches = torch.Generator().manual_seed(7 + rank)

for _ in range(STEPS):
    batch = torch.randn(8, 16, generator=batches)
    partial = rows(torch.relu(columns(batch)))
    total = partial.detach().clone()
    work = dist.all_reduce(total, group=halves, async_op=True)
    loss = replica(batch).square().mean()
    work.wait()
    loss = loss + (partial + (total - partial.detach())).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    digest.update(loss.detach().numpy().tobytes())
for parameter in parameters:
    digest.update(parameter.detach().numpy().tobytes())
folder = Path(os.environ["FOLDER"])
(folder / f"{rank}.partial").write_text(digest.hexdigest())
(folder / f"{rank}.partial").rename(folder / f"digest-{rank}")
while not (folder / "end").exists():
    time.sleep(0.01)
