"""Context parallel: each rank holds a part of the sequence; keys and values go round the ring by send and receive."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

from whichrank.testbed.lab.workloads.device import WIDTH, OnDevice
from whichrank.testbed.lab.workloads.script import Script, reduce_gradients, run

_LAYERS = 2
_ROWS = 32
"""Of the sequence, on each rank."""


class RingAttention(nn.Module):
    """Attention over the whole sequence, of which this rank has a part; shape (rows, WIDTH) in and out.

    The keys and values of others are taken as constants, so gradients stay on their rank: the messages of the forward
    pass are those of real ring attention, and the backward pass has none.
    """

    def __init__(self, script: Script, layer: int) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.both = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.work = OnDevice(script.device, layer)
        self._comms = script.comms
        self._before = (script.rank - 1) % script.world_size
        self._after = (script.rank + 1) % script.world_size
        self._turns = script.world_size - 1

    def forward(self, x: Tensor) -> Tensor:
        """Shape (rows, WIDTH) in and out."""
        query, mine = self.query(x), self.both(x)
        held, parts = mine.detach().contiguous(), [mine]
        for _ in range(self._turns):
            received = torch.empty_like(held)
            paths = (self._comms.isend(held, self._after, "world"), self._comms.irecv(received, self._before, "world"))
            for path in paths:
                path.wait()
            parts.append(received)
            held = received
        keys, values = torch.cat(parts).chunk(2, dim=1)
        out: Tensor = self.work(torch.softmax(query @ keys.T / WIDTH**0.5, dim=1) @ values)
        return x + out


def train(script: Script) -> None:
    """Iterate until the limit."""
    torch.manual_seed(0)
    model = nn.Sequential(*(RingAttention(script, layer) for layer in range(_LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for iteration in script.iterations():
        optimizer.zero_grad()
        loss = (model(script.batch(iteration, _ROWS, WIDTH, script.rank)) - 0.5).square().mean()
        loss.backward()
        reduce_gradients(script.comms, model, "world")
        optimizer.step()
        script.log(iteration, loss)
    script.finish(model)


def main(argv: list[str] | None = None) -> int:
    """Run one rank."""
    return run("ring", train, argv, device_ms=20.0)


if __name__ == "__main__":
    sys.exit(main())
