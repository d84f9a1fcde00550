"""A program of which shares may be changed; says the loss of each iteration and who computed what.

$MODE: `ddp`, `fsdp2` or `pipeline` (two stages, two replicas; the others have four). $DTYPE: of all numbers.
$ITERATIONS: how many there are. $FOLDER: into which each rank writes `said.RANK`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from whichrank.torch import Balancer

RANKS: Final = 4
MICROBATCHES: Final = 4
SAMPLES, WIDTH, LAYERS = 2, 16, 4
Batches = Iterator[Any]


def _loss(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (out - wanted).square().mean()


def _accumulated(model: torch.nn.Module, balancer: Balancer, batches: Batches) -> Callable[[], float]:
    """Computes gradients of one iteration, and returns the sum of losses of this replica."""

    def iteration() -> float:
        lost = 0.0
        for _ in balancer.iteration(model):
            given, wanted = next(batches)
            loss = _loss(model(given), wanted)
            lost += float(loss.detach())
            (loss / MICROBATCHES).backward()  # type: ignore[no-untyped-call]
        return lost

    return iteration


def _piped(
    layers: list[torch.nn.Module], balancer: Balancer, batches: Batches, pipeline: Any, replicas: Any
) -> tuple[torch.nn.Module, Callable[[], float]]:
    """The same for a stage of a pipeline, with its module."""
    place, half = dist.get_rank() % 2, LAYERS // 2
    module = torch.nn.Sequential(*layers[half * place : half * (place + 1)])
    stage = PipelineStage(module, place, 2, torch.device("cpu"), group=pipeline)
    schedules: dict[int, Schedule1F1B] = {}

    def iteration() -> float:
        given, wanted = zip(*(next(batches) for _ in balancer.iteration()), strict=True)
        count = len(given)
        if count not in schedules:  # which divides by the microbatches of this replica
            loss_of = lambda out, wanted: _loss(out, wanted) * count / MICROBATCHES  # noqa: E731
            schedules[count] = Schedule1F1B(stage, count, loss_of)
        stage.chunks = count
        losses: list[torch.Tensor] = []
        if place == 0:
            schedules[count].step(torch.cat(given))
        else:
            schedules[count].step(target=torch.cat(wanted), losses=losses)
        for parameter in module.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad, group=replicas)
            parameter.grad /= 2
        return sum(float(loss.detach()) * MICROBATCHES / count for loss in losses)

    return module, iteration


def main() -> None:
    """Train to the end."""
    mode, iterations = os.environ["MODE"], int(os.environ.get("ITERATIONS", "200"))
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, os.environ["DTYPE"]))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers: list[torch.nn.Module] = [
        torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(LAYERS)
    ]
    replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    pipelines = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    is_pipeline = mode == "pipeline"
    group = replicas[rank % 2] if is_pipeline else None
    balancer = Balancer(MICROBATCHES, group, multiple=2 if is_pipeline else 1)
    size = 3 * balancer.total * SAMPLES
    given = torch.randn(size, WIDTH)
    dataset = TensorDataset(given, torch.tanh(given @ torch.randn(WIDTH, WIDTH)))
    batches = iter(DataLoader(dataset, batch_sampler=balancer.sampler(size, SAMPLES)))
    model: torch.nn.Module
    if is_pipeline:
        model, iteration = _piped(layers, balancer, batches, pipelines[rank // 2], group)
    else:
        if mode == "fsdp2":
            for layer in layers:
                fully_shard(layer)
            model = torch.nn.Sequential(*layers)
            fully_shard(model)
        else:
            model = DistributedDataParallel(torch.nn.Sequential(*layers))
        iteration = _accumulated(model, balancer, batches)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, shares = [], []
    for _ in range(iterations):
        lost = torch.tensor(iteration(), dtype=torch.float64)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(lost)
        losses.append(float(lost) / balancer.total)
        shares.append(balancer.share)
    Path(os.environ["FOLDER"], f"said.{rank}").write_text(json.dumps({"losses": losses, "shares": shares}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.exit(0)
