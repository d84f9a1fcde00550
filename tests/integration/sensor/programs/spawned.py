"""Ranks started by mp.spawn, reported their rank as an argument; no RANK in the environment."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2
rings = Path(os.environ["FOLDER"]) / "rings"


def be_rank(rank, port):
    assert not (rings / f"{os.getpid()}.ring").exists()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    assert (rings / f"{os.getpid()}.ring").exists()
    dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(be_rank, args=(int(os.environ["MASTER_PORT"]),), nprocs=RANKS)
