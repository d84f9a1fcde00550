"""Mixture of experts: one expert on each rank, and tokens that go to theirs and back by uneven all-to-all."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from whichrank.testbed.lab.workloads.device import WIDTH, OnDevice
from whichrank.testbed.lab.workloads.script import Script, reduce_gradients, run

_LAYERS = 2
_TOKENS = 64


class _Exchange(torch.autograd.Function):
    """Rows go to the ranks as `sent` counts them, and come as `received` does; back in the backward pass."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        ctx.sent, ctx.received = sent, received
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        out = grad.new_empty(sum(ctx.sent), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), ctx.sent, ctx.received)
        return out, None, None


class Experts(nn.Module):
    """Shape (tokens, WIDTH) in and out; this rank has one of the experts, and a router that all have."""

    def __init__(self, script: Script, layer: int) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, script.world_size, bias=False)
        self.expert = nn.Linear(WIDTH, WIDTH, bias=False)
        self.work = OnDevice(script.device, layer)
        self._world_size = script.world_size

    def forward(self, x: Tensor) -> Tensor:
        """Shape (tokens, WIDTH) in and out."""
        weight, chosen = torch.softmax(self.router(x), dim=1).max(dim=1)
        order = torch.argsort(chosen, stable=True)
        counts = torch.bincount(chosen, minlength=self._world_size)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        sent, received = counts.tolist(), theirs.tolist()
        tokens: Tensor = _Exchange.apply(x[order], sent, received)  # type: ignore[no-untyped-call]
        done = torch.relu(self.expert(self.work(tokens)))
        back: Tensor = _Exchange.apply(done, received, sent)  # type: ignore[no-untyped-call]
        out = torch.empty_like(x).index_copy(0, order, back)
        return x + out * weight[:, None]


def train(script: Script) -> None:
    """Iterate until the limit."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Experts(script, layer) for layer in range(_LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for iteration in script.iterations():
        optimizer.zero_grad()
        loss = (model(script.batch(iteration, _TOKENS, WIDTH, script.rank)) - 0.5).square().mean()
        loss.backward()
        reduce_gradients(script.comms, model, "world", but="expert")
        optimizer.step()
        script.log(iteration, loss)
    script.finish(model)


def main(argv: list[str] | None = None) -> int:
    """Run one rank."""
    return run("moe", train, argv, device_ms=20.0)


if __name__ == "__main__":
    sys.exit(main())
