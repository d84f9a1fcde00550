"""Four ranks make communicators of some of them; the last member comes when the test opens the gate."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

folder = Path(os.environ["FOLDER"])
dist.init_process_group("gloo")
rank = dist.get_rank()


def make(gate: str, ranks: list[int]) -> None:
    while rank == ranks[-1] and not (folder / gate).exists():
        time.sleep(0.01)
    group = dist.new_group(ranks)
    if rank in ranks:
        dist.all_reduce(torch.ones(1), group=group)


make("even", [0, 2])
make("some", [0, 1, 3])
dist.barrier()
dist.destroy_process_group()
