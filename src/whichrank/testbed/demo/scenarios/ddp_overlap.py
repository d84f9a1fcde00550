"""DDP overlaps all-reduces with the backward pass; a rank gets stuck in the backward pass with some of them out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from whichrank.testbed.demo.scenarios.play import Play, compute

_WIDTH = 256


class _Checkpoint(torch.autograd.Function):
    """Identity whose backward is a place of the scenario."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, play: Play) -> Tensor:
        ctx.play = play
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        compute()
        ctx.play.at("backward")
        return grad, None


class _Net(nn.Module):
    def __init__(self, play: Play) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(6))
        self._play = play

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = torch.relu(layer(x))
            if number == 2:
                x = _Checkpoint.apply(x, self._play)  # type: ignore[no-untyped-call]
        return x


def main() -> None:
    """Train with one bucket per layer."""
    play = Play(places=("backward",))
    model = DistributedDataParallel(_Net(play), bucket_cap_mb=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _iteration in play.iterations():
        optimizer.zero_grad()
        model(torch.randn(16, _WIDTH)).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
