"""Functional collectives, eager or inside a graph that torch.compile has made."""

import argparse
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor
from torch._dynamo.utils import counters


def step_of(x: Tensor, weight: Tensor, group: dist.ProcessGroup) -> Tensor:
    """One layer whose output is summed over the ranks, and the mean of what all ranks have."""
    hidden = funcol.all_reduce(torch.relu(x @ weight), "sum", group)
    gathered = funcol.all_gather_tensor(hidden.mean(dim=0), gather_dim=0, group=group)
    total: Tensor = hidden.mean() + gathered.mean()
    return total


def main() -> None:
    """Run the layer again and again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--compile", nargs="?", const="inductor", metavar="BACKEND", help="run it by torch.compile")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = dist.group.WORLD
    assert group is not None
    torch.manual_seed(dist.get_rank())
    weight = torch.randn(64, 64) / 8
    function = torch.compile(step_of, backend=args.compile, fullgraph=True) if args.compile else step_of

    for step in range(args.steps):
        with torch.no_grad():
            value = function(torch.randn(16, 64), weight, group)
        time.sleep(0.02)
        if step % 10 == 0 and dist.get_rank() == 0:
            graphs = f" of {counters['stats']['unique_graphs']} compiled graph" if args.compile else ""
            print(f"step {step} value {value.item():.4f}{graphs}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
