"""Data parallel: DistributedDataParallel, whose reducer issues its all-reduces from C++ during the backward pass."""

from __future__ import annotations

import sys

import torch
from torch.nn.parallel import DistributedDataParallel

from whichrank.testbed.lab.workloads.device import WIDTH, blocks
from whichrank.testbed.lab.workloads.script import Script, run

_LAYERS = 4
_ROWS = 16


def train(script: Script) -> None:
    """Iterate until the limit."""
    torch.manual_seed(0)
    model = DistributedDataParallel(blocks(script.device, _LAYERS), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for iteration in script.iterations():
        loss = (model(script.batch(iteration, _ROWS, WIDTH, script.rank)) - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        metrics = script.metrics(loss, norm)
        script.comms.broadcast(metrics, "world", root=0)  # whether to go on is decided by one of them
        script.log(iteration, metrics)
    script.finish(model)


def main(argv: list[str] | None = None) -> int:
    """Run one rank."""
    return run("ddp", train, argv)


if __name__ == "__main__":
    sys.exit(main())
