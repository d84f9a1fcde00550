"""FSDP2: parameters gathered and gradients reduce-scattered layer by layer."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (batch, width) in and out."""
        out: Tensor = x + self.down(torch.relu(self.up(self.norm(x))))
        return out


def main() -> None:
    """Train four sharded blocks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp_shard",))
    torch.manual_seed(0)

    model = nn.Sequential(*[Block(128) for _ in range(4)])
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for step in range(steps):
        x = torch.randn(16, 128)
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
