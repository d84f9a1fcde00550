"""A rank has finished its send and gets stuck: the last seen of it is a completed operation; it waits for nobody."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from whichrank.testbed.demo.scenarios.play import Play, compute


def main() -> None:
    """Pass a tensor down a chain, then agree on it."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    last = rank == world_size - 1
    play = Play(places=() if last else ("after-send",))
    for _iteration in play.iterations():
        tensor = torch.ones(1024)
        if rank > 0:
            dist.recv(tensor, rank - 1)
        compute()
        if not last:
            dist.send(tensor, rank + 1)
            play.at("after-send")
        compute()
        dist.all_reduce(tensor)


if __name__ == "__main__":
    main()
