"""Runs the microbatches of one iteration through the pipeline stages.

Two schedules. ``gpipe``: all forwards, then all backwards, with blocking `send` and `recv`. ``1f1b``: warm-up, one
forward and one backward in turn, cool-down, with asynchronous sends, of which one per direction may be out: with
blocking sends on both sides 1F1B would deadlock on Gloo, where a send waits for its receiver.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from whichrank.testbed.demo.comms import Comms, Handle
from whichrank.testbed.demo.layout import Layout
from whichrank.testbed.demo.model import WIDTH, Stage

SCHEDULES = ("1f1b", "gpipe")


class Pipeline:
    """One rank's part of the pipeline.

    Args:
        layout: of the job.
        rank: mine.
        comms: mine.
        stage: the layers that I hold.
        microbatches: per iteration.
        rows: of each.
        schedule: 1f1b or gpipe.

    Attributes:
        rows: of each microbatch of the next iteration.
    """

    def __init__(
        self, layout: Layout, rank: int, comms: Comms, stage: Stage, microbatches: int, rows: int, schedule: str
    ) -> None:
        ranks = layout.members(rank, "pp")
        self._index = layout.index(rank, "pp")
        self._last = layout.pp - 1
        self._before = ranks[self._index - 1] if self._index > 0 else -1
        self._after = ranks[self._index + 1] if self._index < self._last else -1
        self._replica = layout.index(rank, "dp")
        self._comms = comms
        self._stage = stage
        self._microbatches = microbatches
        self.rows = rows
        self._schedule = schedule
        self._held: deque[tuple[Tensor, Tensor]] = deque()
        self._sends: dict[int, tuple[Handle, Tensor]] = {}
        self._loss = torch.zeros(1)

    @property
    def first_rank(self) -> bool:
        """Whether this is the first stage."""
        return self._index == 0

    def run(self, iteration: int) -> Tensor:
        """Forward and backward of all microbatches; gradients are accumulated in the stage.

        Returns:
            The mean loss, shape (1,), on the last stage; zero elsewhere.
        """
        self._loss = torch.zeros(1)
        total = self._microbatches
        if self._schedule == "gpipe":
            for number in range(total):
                self._forward(iteration, number)
            for _ in range(total):
                self._backward()
        else:
            warmup = min(total, self._last - self._index)
            for number in range(warmup):
                self._forward(iteration, number)
            for number in range(warmup, total):
                self._forward(iteration, number)
                self._backward()
            for _ in range(warmup):
                self._backward()
        for handle, _tensor in self._sends.values():
            handle.wait()
        self._sends.clear()
        return self._loss

    def _forward(self, iteration: int, number: int) -> None:
        if self._before < 0:
            source = torch.Generator().manual_seed((iteration * 1000 + number) * 64 + self._replica)
            x = torch.randn(self.rows, WIDTH, generator=source)
        else:
            x = torch.empty(self.rows, WIDTH)
            self._comms.recv(x, self._before)
        x.requires_grad_(self._before >= 0)
        out: Tensor = self._stage(x)
        if self._after >= 0:
            self._push(out.detach(), self._after)
        else:
            out = (out - 0.5).square().mean() / self._microbatches
            self._loss += out.detach()
        self._held.append((x, out))

    def _backward(self) -> None:
        x, out = self._held.popleft()
        if self._after >= 0:
            grad = torch.empty_like(out)
            self._comms.recv(grad, self._after)
            torch.autograd.backward(out, grad)
        else:
            torch.autograd.backward(out)
        if self._before >= 0:
            assert x.grad is not None
            self._push(x.grad, self._before)

    def _push(self, tensor: Tensor, destination: int) -> None:
        if self._schedule == "gpipe":
            self._comms.send(tensor.contiguous(), destination)
            return
        if destination in self._sends:
            self._sends.pop(destination)[0].wait()
        tensor = tensor.contiguous()
        self._sends[destination] = (self._comms.isend(tensor, destination), tensor)
