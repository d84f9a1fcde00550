"""Tensor × pipeline × data parallel: DTensor splits each block, torch's own 1F1B schedule runs the stages."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from whichrank.testbed.demo.groups import Group
from whichrank.testbed.demo.layout import Layout
from whichrank.testbed.lab.workloads.device import WIDTH, blocks
from whichrank.testbed.lab.workloads.script import Script, reduce_gradients, run

_LAYERS = 2
"""Of each pipeline stage."""
_ROWS = 8
"""Of a microbatch, unless told otherwise."""
_SPLIT = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def train(script: Script) -> None:
    """Iterate until the limit."""
    layout: Layout = script.args.layout
    pp, dp = layout.index(script.rank, "pp"), layout.index(script.rank, "dp")
    mesh = init_device_mesh("cpu", (layout.pp, layout.dp, layout.tp), mesh_dim_names=("pp", "dp", "tp"))
    script.comms.groups.update(_groups(script, mesh, layout))
    torch.manual_seed(pp)
    model = blocks(script.device, _LAYERS)
    if layout.tp > 1:
        for block in model:
            parallelize_module(block, mesh["tp"], dict(_SPLIT))
    stage = PipelineStage(model, pp, layout.pp, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, 2 * layout.pp, loss_fn=_loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = script.args.rows * 2 * layout.pp
    target = torch.full((round(rows * script.rows), WIDTH), 0.5)
    for iteration in script.iterations():
        optimizer.zero_grad()
        losses: list[Tensor] = []
        first = [script.batch(iteration, rows, WIDTH, dp)] if pp == 0 else []
        last: dict[str, Any] = {"target": target, "losses": losses} if pp == layout.pp - 1 else {}
        schedule.step(*first, **last)
        if layout.dp > 1:
            reduce_gradients(script.comms, model, "dp")
        optimizer.step()
        shown = torch.stack(losses).detach().mean().reshape(1) if losses else torch.zeros(1)
        script.comms.broadcast(shown, "pp", root=script.comms.groups["pp"].ranks[-1])
        script.log(iteration, shown)
    script.finish(model)


def _groups(script: Script, mesh: DeviceMesh, layout: Layout) -> dict[str, Group]:
    found = {}
    for role in ("pp", "dp", "tp"):
        handle = mesh.get_group(role)
        dist.distributed_c10d._set_pg_timeout(script.timeout, handle)
        found[role] = Group(role, handle, layout.members(script.rank, role), layout.index(script.rank, role))
    return found


def _loss(out: Tensor, target: Tensor) -> Tensor:
    return (out - target).square().mean()


def main(argv: list[str] | None = None) -> int:
    """Run one rank."""
    layout = {"type": Layout.parse, "default": Layout(tp=2, pp=4, dp=2), "help": "e.g. tp2-pp4-dp2"}
    rows = {"type": int, "default": _ROWS, "help": "of a microbatch"}
    return run("threed", train, argv, layout=layout, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
