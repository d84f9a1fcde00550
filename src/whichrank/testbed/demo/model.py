"""The network of the demo job: layers split over the tensor-parallel group, as in Megatron-Core.

Each layer is a real column-parallel and row-parallel matrix product with one all-reduce in the forward and one in
the backward pass, plus a fixed *device time*: a sleep, during which a GPU would compute. So 8 to 16 ranks behave
like devices on two cores.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from whichrank.testbed.demo.comms import Comms

WIDTH = 256
ROWS = 16
PASSES = 3
"""Device times of a layer in a microbatch: one on the way forward, two on the way back."""


class _Device(torch.autograd.Function):
    """Device time of a layer: once on the way forward, twice on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_s: float, backward_s: float) -> Tensor:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        time.sleep(ctx.backward_s)
        return grad, None, None


class _Enter(torch.autograd.Function):
    """Into the tensor-parallel region: identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comms: Comms) -> Tensor:
        ctx.comms = comms
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous().clone()
        ctx.comms.all_reduce(grad, "tp")
        return grad, None


class _Leave(torch.autograd.Function):
    """Out of the tensor-parallel region: all-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comms: Comms) -> Tensor:
        out = x.contiguous().clone()
        comms.all_reduce(out, "tp")
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class ParallelLayer(nn.Module):
    """One residual block of width `WIDTH`, its hidden units split over `shards` ranks."""

    def __init__(self, comms: Comms, shards: int, device_s: float) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))
        self.up = nn.Parameter(torch.randn(WIDTH, WIDTH // shards) * WIDTH**-0.5)
        self.down = nn.Parameter(torch.randn(WIDTH // shards, WIDTH) * WIDTH**-0.5)
        self._comms = comms
        self._shards = shards
        self.forward_s, self.backward_s = device_s, 2 * device_s

    def forward(self, x: Tensor) -> Tensor:
        """Shape (rows, WIDTH) in and out."""
        hidden = torch.nn.functional.rms_norm(x, (WIDTH,), self.gain)
        if self._shards > 1:
            hidden = _apply(_Enter, hidden, self._comms)
        hidden = _apply(_Device, torch.relu(hidden @ self.up), self.forward_s, self.backward_s)
        hidden = hidden @ self.down
        if self._shards > 1:
            hidden = _apply(_Leave, hidden, self._comms)
        return x + hidden


def _apply(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    out: Tensor = function.apply(*args)  # type: ignore[no-untyped-call]
    return out


class Stage(nn.Module):
    """The layers of one pipeline stage."""

    def __init__(self, comms: Comms, layers: int, shards: int, device_s: float) -> None:
        super().__init__()
        self._device_s = device_s
        self.layers = nn.ModuleList(ParallelLayer(comms, shards, device_s) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Shape (rows, WIDTH) in and out."""
        for layer in self.layers:
            x = layer(x)
        return x

    def slow_down(self, factor: float, layers: int, phase: str) -> None:
        """From now on the device takes so many times as long in the first layers; 0: in all; in one phase, or both."""
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, ParallelLayer)
            slower = factor if not layers or number < layers else 1.0
            layer.forward_s = self._device_s * (slower if phase != "backward" else 1.0)
            layer.backward_s = 2 * self._device_s * (slower if phase != "forward" else 1.0)

    def buckets(self, ragged: bool) -> list[list[nn.Parameter]]:
        """Parameters whose gradients are reduced together: a bucket per layer; if `ragged`, another for all gains."""
        blocks = [layer for layer in self.layers if isinstance(layer, ParallelLayer)]
        if not ragged:
            return [[block.up, block.down, block.gain] for block in blocks]
        return [[block.up, block.down] for block in blocks] + [[block.gain for block in blocks]]
