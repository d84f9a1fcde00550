"""An asynchronous all-reduce is issued and its process is suspended at once: entered everywhere, complete nowhere."""

from __future__ import annotations

import torch
import torch.distributed as dist

from whichrank.testbed.demo.scenarios.play import Play, compute


def main() -> None:
    """All-reduce 4 MB asynchronously while computing."""
    play = Play(places=("issued",))
    for _iteration in play.iterations():
        compute()
        tensor = torch.ones(1 << 20)
        work = dist.all_reduce(tensor, async_op=True)
        play.at("issued")
        compute()
        if work is not None:
            work.wait()


if __name__ == "__main__":
    main()
