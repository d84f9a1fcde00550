"""Interleaved 1F1B, two stages of each rank, on the default group; one rank falls asleep in one pass of one stage.

Usage: looped.py PHASE STAGE MICROBATCH
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

STEPS, STAGES_PER_RANK, MICROBATCHES = 100_000, 2, 4
ASLEEP_AT = 12
where = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
done = Counter[tuple[str, int]]()
step = 0


def passes(phase: str, stage: int) -> None:
    """A pass of a stage: each of its microbatches comes in order."""
    done[phase, stage] += 1
    if step == ASLEEP_AT and (phase, stage, done[phase, stage] - 1) == where:
        print("falls asleep", flush=True)
        time.sleep(10_000)
    time.sleep(0.005)


class Backward(torch.autograd.Function):
    """Passes on what it is given, both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, stage: int) -> Tensor:
        ctx.stage = stage
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        passes("backward", ctx.stage)
        return gradient, None


class Part(nn.Module):
    """A stage."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        self.stage, self.layer = stage, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        if step == 0:  # shapes are agreed on
            return self.layer(x)
        passes("forward", self.stage)
        return Backward.apply(self.layer(x), self.stage)


dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
parts = [Part(rank + ranks * number) for number in range(STAGES_PER_RANK)]
stages = [PipelineStage(part, part.stage, ranks * STAGES_PER_RANK, torch.device("cpu")) for part in parts]
schedule = ScheduleInterleaved1F1B(stages, MICROBATCHES, loss_fn=lambda out, target: (out - target).square().sum())
optimizer = torch.optim.SGD(nn.ModuleList(parts).parameters(), lr=1e-3)
while step < STEPS:
    done.clear()
    given = [torch.ones(MICROBATCHES, 8)] if rank == 0 else []
    schedule.step(*given, **({"target": torch.zeros(MICROBATCHES, 8)} if rank == ranks - 1 else {}))
    optimizer.step()
    optimizer.zero_grad()
    step += 1
