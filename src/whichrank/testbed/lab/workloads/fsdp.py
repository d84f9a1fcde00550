"""Fully sharded data parallel: FSDP2, which all-gathers each block twice and reduce-scatters its gradients."""

from __future__ import annotations

import sys

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from whichrank.testbed.lab.workloads.device import WIDTH, blocks
from whichrank.testbed.lab.workloads.script import Script, run

_LAYERS = 4
_ROWS = 16


def train(script: Script) -> None:
    """Iterate until the limit."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (script.world_size,), mesh_dim_names=("dp",))
    model = blocks(script.device, _LAYERS)
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for iteration in script.iterations():
        loss = (model(script.batch(iteration, _ROWS, WIDTH, script.rank)) - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        script.log(iteration, script.metrics(loss, loss.square()))
    script.finish(model)


def main(argv: list[str] | None = None) -> int:
    """Run one rank."""
    return run("fsdp", train, argv, device_ms=20.0)


if __name__ == "__main__":
    sys.exit(main())
