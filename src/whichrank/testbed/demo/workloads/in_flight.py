"""Many operations in flight: everything of a step is issued before anything is waited for, on two groups and in pairs.

So do trainers that overlap communication with the backward pass. At the end of a step 112 operations are in flight.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor

LAYERS = 32
NEIGHBOURS = 24


def issue(layers: list[Tensor], experts: list[Tensor], group: dist.ProcessGroup) -> list[dist.Work]:
    """Start the sums of all layers, those of experts on a group of their own, and an exchange between neighbours."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    works: list[dist.Work | None] = []
    for layer, expert in zip(layers, experts, strict=True):
        works.append(dist.all_reduce(layer, async_op=True))
        works.append(dist.all_reduce(expert, group=group, async_op=True))
        time.sleep(0.0005)
    for tag in range(NEIGHBOURS):
        works.append(dist.irecv(torch.empty(64), left, tag=tag))
        works.append(dist.isend(torch.ones(64), right, tag=tag))
    return [work for work in works if work is not None]


def main() -> None:
    """Issue all, wait for all, again and again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = dist.new_group(group_desc="experts")
    assert group is not None

    for step in range(steps):
        layers = [torch.ones(512) for _ in range(LAYERS)]
        works = issue(layers, [torch.ones(64) for _ in range(LAYERS)], group)
        for work in works:
            work.wait()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"step {step} sum {layers[-1][0].item():.0f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
