"""DistributedDataParallel: the reducer issues its all-reduces from C++ during the backward pass."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(steps: int) -> None:
    """A small network, with a metric averaged every tenth step."""
    layers = [nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.25)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for step in range(steps):
        x = torch.randn(32, 128)
        loss = (model(x) - x.mean(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if step % 10 == 0:
            metric = loss.detach().clone()
            dist.all_reduce(metric)
            if dist.get_rank() == 0:
                print(f"step {step} loss {metric.item() / dist.get_world_size():.4f}", flush=True)


def main() -> None:
    """Train, and leave once the model is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    train(steps)  # a reducer that outlives its group holds the GIL while it joins a thread that wants it (torch 2.13)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
