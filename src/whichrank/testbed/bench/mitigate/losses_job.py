"""A program of which shares may be changed; says the loss of each iteration and who computed what.

$MODE: `ddp`, `fsdp2` or `pipeline` (two stages, two replicas; the others have four), or one of `losses_megatron`.
$DTYPE: of all numbers. $ITERATIONS: how many there are. $PER_TOKEN: set where Megatron-Core divides by tokens.
$FOLDER: into which each rank writes `said.RANK`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
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
Job = tuple[Balancer, list[torch.nn.Parameter], Callable[[], float]]
"""The balancer, what is trained on this rank, and what computes gradients and says the losses of this replica."""


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


def _batches(balancer: Balancer) -> Batches:
    """The samples of each microbatch of this replica."""
    size = 3 * balancer.total * SAMPLES
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(size, WIDTH, generator=generator)
    dataset = TensorDataset(given, torch.tanh(given @ torch.randn(WIDTH, WIDTH, generator=generator)))
    return iter(DataLoader(dataset, batch_sampler=balancer.sampler(size, SAMPLES)))


def _torch_job(mode: str, layers: list[torch.nn.Module]) -> Job:
    """Of torch alone."""
    rank = dist.get_rank()
    replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    pipelines = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    is_pipeline = mode == "pipeline"
    group = replicas[rank % 2] if is_pipeline else None
    balancer = Balancer(MICROBATCHES, group, multiple=2 if is_pipeline else 1)
    batches = _batches(balancer)
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
    return balancer, list(model.parameters()), iteration


def _megatron_job(mode: str, layers: list[torch.nn.Module]) -> Job:
    """With Megatron-Core."""
    from whichrank.testbed.bench.mitigate.losses_megatron import MegatronJob

    job = MegatronJob(mode, layers, WIDTH, MICROBATCHES, SAMPLES, bool(os.environ.get("PER_TOKEN")))
    return job.balancer, job.parameters(), job.iteration(partial(_batches, job.balancer))


def _whole(parameter: Any) -> torch.Tensor:
    """A parameter, of all ranks where it is sharded."""
    value: torch.Tensor = parameter.detach()
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def main() -> None:
    """Train to the end."""
    mode, iterations = os.environ["MODE"], int(os.environ.get("ITERATIONS", "200"))
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, os.environ["DTYPE"]))
    dist.init_process_group("gloo")
    layers: list[torch.nn.Module] = [
        torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(LAYERS)
    ]
    setup = _megatron_job if mode.startswith("megatron") else _torch_job
    balancer, parameters, iteration = setup(mode, layers)
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    losses, shares = [], []
    for _ in range(iterations):
        lost = torch.tensor(iteration(), dtype=torch.float64)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(lost)
        losses.append(float(lost) / balancer.total)
        shares.append(balancer.share)
    trained = torch.cat([_whole(parameter).reshape(-1) for parameter in parameters]).tolist()
    said = {"losses": losses, "shares": shares, "trained": trained}
    Path(os.environ["FOLDER"], f"said.{dist.get_rank()}").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.exit(0)
