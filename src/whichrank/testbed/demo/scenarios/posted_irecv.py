"""A receive is posted, then the rank gets stuck in compute: the receive blocks nobody, and is no edge of a cycle."""

from __future__ import annotations

import torch
import torch.distributed as dist

from whichrank.testbed.demo.scenarios.play import Play, compute


def main() -> None:
    """Pass a tensor around a ring, receives posted before the computation."""
    play = Play(places=("compute",))
    before, after = (play.rank - 1) % play.world_size, (play.rank + 1) % play.world_size
    for iteration in play.iterations():
        incoming, outgoing = torch.empty(1024), torch.full((1024,), float(iteration))
        receive = dist.irecv(incoming, before)
        compute()
        play.at("compute")
        compute()
        send = dist.isend(outgoing, after)
        for work in (receive, send):
            if work is not None:
                work.wait()
        dist.all_reduce(incoming)


if __name__ == "__main__":
    main()
