"""One rank of a job that `whichrank bench gate` pauses.

``python -m whichrank.testbed.bench.gated_job KIND STEPS FOLDER``

It trains for STEPS steps, 0: until there is a file `enough` in FOLDER, and writes how many it made and a hash of its
parameters to `said.RANK` there.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SIDE: Final = 128


def main(kind: str, steps: int, folder: Path) -> None:
    """Train, and say what came of it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers = torch.nn.Sequential(*[torch.nn.Linear(SIDE, SIDE) for _ in range(3)])
    numbers = torch.Generator().manual_seed(rank)
    parameters, compute = (_three_ways if kind == "3d" else _data_parallel)(kind, layers, numbers)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    made = 0
    for made in itertools.count(1):
        compute()
        optimizer.step()
        optimizer.zero_grad()
        is_enough = torch.tensor([float(made == steps or (not steps and (folder / "enough").exists()))])
        dist.all_reduce(is_enough, op=dist.ReduceOp.MAX)
        if is_enough:
            break
    whole = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in parameters]
    content = b"".join(one.detach().numpy().tobytes() for one in whole)
    (folder / f"said.{rank}").write_text(f"{made} {hashlib.sha256(content).hexdigest()}")
    while len(list(folder.glob("said.*"))) < dist.get_world_size():
        time.sleep(0.01)
    # Not by the end of the program: torch 2.13 may destroy Gloo's group with Python's lock, which a thread of it wants.
    os._exit(0)


def _data_parallel(
    kind: str, layers: torch.nn.Sequential, numbers: torch.Generator
) -> tuple[list[Any], Callable[[], None]]:
    model: Any = layers
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in layers:
            fully_shard(layer)
        fully_shard(layers)
    else:
        model = DistributedDataParallel(layers)

    def compute() -> None:
        model(torch.randn(8, SIDE, generator=numbers)).square().mean().backward()

    return list(model.parameters()), compute


def _three_ways(
    _kind: str, layers: torch.nn.Sequential, numbers: torch.Generator
) -> tuple[list[Any], Callable[[], None]]:
    rank = dist.get_rank()
    tensor, data = [[dist.new_group(list(ranks)) for ranks in groups] for groups in _groups()]
    beside, replicas = tensor[rank // 2], data[rank // 4 * 2 + rank % 2]
    is_first, other = rank < 4, (rank + 4) % 8
    parameters = list(layers.parameters())

    def compute() -> None:
        if is_first:
            given = torch.randn(8, SIDE, generator=numbers)
        else:
            given = torch.empty(8, SIDE)
            dist.recv(given, other)
        given.requires_grad_()
        out = layers(given)
        shared = out.detach().clone()
        dist.all_reduce(shared, group=beside)
        if is_first:
            dist.send(shared, other)
            dist.recv(shared, other)
            out.backward(shared)
        else:
            (out * shared).mean().backward()
            assert given.grad is not None
            dist.send(given.grad, other)
        for one in parameters:
            dist.all_reduce(one.grad, group=replicas)

    return parameters, compute


def _groups() -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Ranks that share layers, and ranks that are replicas of each other."""
    return [(at, at + 1) for at in range(0, 8, 2)], [(0, 2), (1, 3), (4, 6), (5, 7)]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
