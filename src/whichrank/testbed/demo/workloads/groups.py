"""DeviceMesh dimensions, new_group subsets and object collectives side by side."""

import argparse
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main() -> None:
    """Reduce over both mesh dimensions, gather statistics among the even ranks, and exchange objects now and then."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size % 2:
        raise SystemExit("needs an even number of ranks")
    mesh = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("dp", "tp"))
    even = dist.new_group(list(range(0, world_size, 2)))

    for step in range(steps):
        activations, gradients = torch.ones(2048), torch.ones(8192)
        for _ in range(4):
            dist.all_reduce(activations, group=mesh.get_group("tp"))
            time.sleep(0.005)
        dist.all_reduce(gradients, group=mesh.get_group("dp"))
        if rank % 2 == 0:
            parts = [torch.empty(16) for _ in range(dist.get_world_size(even))]
            dist.all_gather(parts, torch.full((16,), float(rank)), group=even)
        if step % 10 == 0:
            rows: list[Any] = [None] * world_size
            dist.all_gather_object(rows, {"rank": rank, "step": step})
            config: list[Any] = [{"lr": 0.1 / (step + 1)} if rank == 0 else None]
            dist.broadcast_object_list(config, src=0)
            if rank == 0:
                print(f"step {step} rows {len(rows)}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
