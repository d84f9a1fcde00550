"""Parallelism as libraries do it: DDP, FSDP2, tensor parallel, pipelining, a compiled collective; four ranks."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from leaving import leave
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STEPS = 2

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
shard = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
ddp_group = dist.new_group(range(4), group_desc="DDP")
torch.manual_seed(0)


def steps(model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


replica = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
steps(nn.parallel.DistributedDataParallel(replica, process_group=ddp_group), torch.ones(2, 8))

sharded = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for layer in sharded:
    fully_shard(layer, mesh=shard["shard"])
steps(fully_shard(sharded, mesh=shard["shard"]), torch.ones(2, 8))

parallel = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
parallelize_module(parallel, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
steps(parallel, torch.ones(2, 8))


@torch.compile
def reduced(x):
    return functional.all_reduce(x, "sum", mesh.get_group("tp"))


for _ in range(STEPS):
    assert float(reduced(torch.ones(33))[0]) == 2

place = mesh.get_local_rank("pp")
part = nn.Linear(8, 8)
stage = PipelineStage(part, place, 2, torch.device("cpu"), group=mesh.get_group("pp"))
for schedule in (ScheduleGPipe, Schedule1F1B):
    run = schedule(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).sum())
    for _ in range(STEPS):
        if place == 0:
            run.step(torch.ones(8, 8))
        else:
            run.step(target=torch.zeros(8, 8))
dist.barrier()

leave()
