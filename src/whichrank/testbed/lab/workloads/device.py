"""A device that is not there: layers that compute for real, and then sleep for as long as a GPU would take."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 256


class Device:
    """How long the layers of a rank take on it.

    Args:
        layer_s: of one layer forward, for the usual number of rows; twice that backward.
    """

    def __init__(self, layer_s: float) -> None:
        self._layer_s = layer_s
        self._factor = 1.0
        self._slow_layers = 0
        self._slow_phase = ""
        self.load = 1.0
        """Rows of this rank's batch, in proportion to the usual."""

    def slow_down(self, factor: float, layers: int, phase: str) -> None:
        """From now on it takes so many times as long in the first layers; 0: in all; in one phase; empty: in both."""
        self._factor, self._slow_layers, self._slow_phase = factor, layers, phase

    def time_s(self, layer: int, phase: str) -> float:
        """Of this layer forward or backward, now."""
        is_slow = (not self._slow_layers or layer < self._slow_layers) and self._slow_phase in ("", phase)
        return self._layer_s * self.load * (self._factor if is_slow else 1.0) * (2 if phase == "backward" else 1)


class _Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Device, layer: int) -> Tensor:
        ctx.device, ctx.layer = device, layer
        time.sleep(device.time_s(layer, "forward"))
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        time.sleep(ctx.device.time_s(ctx.layer, "backward"))
        return grad, None, None


class OnDevice(nn.Module):
    """Passes its input on, after the time of the device."""

    def __init__(self, device: Device, layer: int) -> None:
        super().__init__()
        self._device = device
        self._layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in and out."""
        out: Tensor = _Work.apply(x, self._device, self._layer)  # type: ignore[no-untyped-call]
        return out


class Block(nn.Module):
    """One residual block, shape (rows, WIDTH) in and out; `up` and `down` are what tensor parallelism splits."""

    def __init__(self, device: Device, layer: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.up = nn.Linear(WIDTH, WIDTH, bias=False)
        self.work = OnDevice(device, layer)
        self.down = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (rows, WIDTH) in and out."""
        out: Tensor = self.down(self.work(torch.relu(self.up(self.norm(x)))))
        return x + out


def blocks(device: Device, count: int) -> nn.Sequential:
    """So many of them, one after the other."""
    return nn.Sequential(*(Block(device, layer) for layer in range(count)))
