"""More operations in flight than the sensor has slots for (64), and a rank stuck among them.

Every rank posts 80 receives that are satisfied late, and issues 100 all-reduces before it waits for any. The victim
gets stuck after ten of these, so that its peers have 90 in flight, or after all of them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from whichrank.testbed.demo.scenarios.play import Play, compute

_RECEIVES = 80
_REDUCTIONS = 100
_STUCK_AFTER = 10


def main() -> None:
    """Issue many, then wait for all."""
    play = Play(places=("few-issued", "all-issued"))
    before, after = (play.rank - 1) % play.world_size, (play.rank + 1) % play.world_size
    for _iteration in play.iterations():
        incoming = [torch.empty(8) for _ in range(_RECEIVES)]
        pending = [dist.irecv(tensor, before, tag=tag) for tag, tensor in enumerate(incoming)]
        for number in range(_REDUCTIONS):
            if number == _STUCK_AFTER:
                play.at("few-issued")
            pending.append(dist.all_reduce(torch.ones(64), async_op=True))
        play.at("all-issued")
        compute()
        pending += [dist.isend(torch.ones(8), after, tag=tag) for tag in range(_RECEIVES)]
        for work in pending:
            if work is not None:
                work.wait()
        compute()


if __name__ == "__main__":
    main()
