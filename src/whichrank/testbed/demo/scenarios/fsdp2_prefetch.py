"""FSDP2 gathers the parameters of the next layer while this one computes; a rank gets stuck between the two."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from whichrank.testbed.demo.scenarios.play import Play, compute

_WIDTH = 256


class _Block(nn.Module):
    def __init__(self, play: Play | None) -> None:
        super().__init__()
        self.linear = nn.Linear(_WIDTH, _WIDTH)
        self._play = play

    def forward(self, x: Tensor) -> Tensor:
        if self._play is not None:
            compute()
            self._play.at("forward")
        return x + torch.relu(self.linear(x))


def main() -> None:
    """Train four sharded blocks with explicit forward prefetch."""
    play = Play(places=("forward",))
    mesh = init_device_mesh("cpu", (play.world_size,), mesh_dim_names=("dp_shard",))
    blocks = [_Block(play if number == 1 else None) for number in range(4)]
    model = nn.Sequential(*blocks)
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for block, following in pairwise(blocks):
        assert isinstance(block, FSDPModule)
        assert isinstance(following, FSDPModule)
        block.set_modules_to_forward_prefetch([following])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _iteration in play.iterations():
        optimizer.zero_grad()
        model(torch.randn(16, _WIDTH)).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
