"""Gradient accumulation of which shares may be changed; says the loss of each iteration and who computed what.

$MODE: ddp, fsdp2 or pipeline (two stages, two replicas). $DTYPE: of all numbers. $ITERATIONS says how many there are.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from whichrank.torch import Balancer

MODE, DTYPE = os.environ["MODE"], getattr(torch, os.environ["DTYPE"])
ITERATIONS = int(os.environ.get("ITERATIONS", "200"))
MICROBATCHES, SAMPLES, WIDTH = 4, 2, 16

torch.manual_seed(0)
torch.set_default_dtype(DTYPE)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(4)]
replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])]
stages = [dist.new_group([0, 1]), dist.new_group([2, 3])]
group = replicas[rank % 2] if MODE == "pipeline" else None
balancer = Balancer(MICROBATCHES, group, multiple=2 if MODE == "pipeline" else 1)
size = 3 * balancer.total * SAMPLES
given = torch.randn(size, WIDTH)
dataset = TensorDataset(given, torch.tanh(given @ torch.randn(WIDTH, WIDTH)))
batches = iter(DataLoader(dataset, batch_sampler=balancer.sampler(size, SAMPLES)))


def loss_of(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (out - wanted).square().mean()


def accumulated(model: torch.nn.Module) -> Callable[[], float]:
    """Gradients of one iteration; returns the sum of losses of this replica."""

    def iteration() -> float:
        lost = 0.0
        for _ in balancer.iteration(model):
            given, wanted = next(batches)
            loss = loss_of(model(given), wanted)
            lost += float(loss.detach())
            (loss / MICROBATCHES).backward()
        return lost

    return iteration


def piped() -> tuple[torch.nn.Module, Callable[[], float]]:
    place, pipeline = rank % 2, stages[rank // 2]
    module = torch.nn.Sequential(*layers[2 * place : 2 * place + 2])
    stage = PipelineStage(module, place, 2, torch.device("cpu"), group=pipeline)
    schedules: dict[int, Schedule1F1B] = {}

    def iteration() -> float:
        given, wanted = zip(*(next(batches) for _ in balancer.iteration()), strict=True)
        count = len(given)
        if count not in schedules:  # which divides by the microbatches of this replica
            schedules[count] = Schedule1F1B(
                stage, count, lambda out, wanted: loss_of(out, wanted) * count / MICROBATCHES
            )
        stage.chunks = count
        losses: list[torch.Tensor] = []
        if place == 0:
            schedules[count].step(torch.cat(given))
        else:
            schedules[count].step(target=torch.cat(wanted), losses=losses)
        for parameter in module.parameters():
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= 2
        return sum(float(loss.detach()) * MICROBATCHES / count for loss in losses)

    return module, iteration


if MODE == "pipeline":
    model, iteration = piped()
elif MODE == "fsdp2":
    model = torch.nn.Sequential(*[fully_shard(layer) for layer in layers])
    fully_shard(model)
    iteration = accumulated(model)
else:
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    iteration = accumulated(model)

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses, shares = [], []
for _ in range(ITERATIONS):
    lost = torch.tensor(iteration(), dtype=torch.float64)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(lost)
    losses.append(float(lost) / balancer.total)
    shares.append(balancer.share)
Path(os.environ["FOLDER"], f"said.{rank}").write_text(json.dumps({"losses": losses, "shares": shares}))
dist.barrier()
dist.destroy_process_group()
sys.exit(0)
