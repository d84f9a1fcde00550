"""What all workloads share: the command line, the way into the process group, the loop, the log."""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from whichrank.sensors import c10d
from whichrank.testbed.demo.comms import Comms
from whichrank.testbed.demo.deviations import Deviation
from whichrank.testbed.demo.drag import Drag
from whichrank.testbed.demo.errands import Errands, prepare_batch
from whichrank.testbed.demo.groups import Group
from whichrank.testbed.demo.seat import Seat
from whichrank.testbed.lab.workloads.device import Device

_SITES_OF_ITERATION = 3


DEVICE_MS = 10.0


def options(name: str, device_ms: float = DEVICE_MS) -> argparse.ArgumentParser:
    """Command line of a workload.

    Args:
        name: Of its module.
        device_ms: Of a layer forward, unless reported otherwise: enough for computation to be a third of an iteration.
    """
    parser = argparse.ArgumentParser(prog=f"whichrank.testbed.lab.workloads.{name}")
    parser.add_argument("--iterations", type=int, default=0, help="stop after so many; 0: no limit")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop at the next log after so long; 0: no limit")
    parser.add_argument("--group-timeout-s", type=float, default=600.0, help="timeout of every communicator")
    parser.add_argument("--device-ms", type=float, default=device_ms, help="device time of a layer forward")
    parser.add_argument("--host-ms", type=float, default=0.0, help="CPU time that a rank needs to prepare a batch")
    parser.add_argument("--log-every", type=int, default=10, help="iterations between logs; 0: never")
    parser.add_argument("--digest", action="store_true", help="print a digest of the parameters at the end")
    return parser


class Script:
    """One rank of a workload.

    Args:
        args: of `options`.

    Attributes:
        device: of this rank.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        torch.set_num_threads(1)
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.args = args
        self._seat = Seat()
        self._settings: dict[str, Any] = self._seat.greet(self.rank, log_every=args.log_every)
        time.sleep(float(self._settings.get("prepare_s", 0)))
        dist.init_process_group("gloo", timeout=self.timeout)
        self.device = Device(args.device_ms / 1e3)
        self._drag = Drag(self._seat, self._settings, self.device)
        self.device.load = self._drag.rows
        self._errands = Errands(
            self.rank, self._seat, self._settings, {"observe": lambda params: c10d.observe(params["on"])}
        )
        self.comms = Comms({"world": self._world()}, self._seat, Deviation)
        self._started_s = time.monotonic()
        self._is_over = False
        self._digest = hashlib.sha256()

    @property
    def rows(self) -> float:
        """Of this rank's batch, in proportion to the usual."""
        return self._drag.rows

    @property
    def timeout(self) -> timedelta:
        """Of every communicator."""
        return timedelta(seconds=self.args.group_timeout_s)

    def _world(self) -> Group:
        world = dist.group.WORLD
        assert world is not None
        return Group("world", world, tuple(range(self.world_size)), self.rank)

    def iterations(self) -> Iterator[int]:
        """Numbers of the iterations, each after what is due before it."""
        iteration = 0
        while not self._is_over:
            sites = self.comms.begin_iteration(iteration)
            extra = {"sites": sites} if iteration == _SITES_OF_ITERATION + 1 else {}
            self._seat.report("iteration", iteration=iteration, **extra)
            self._errands.at_start_of(iteration)
            self._drag.at_start_of(iteration)
            self.device.load = self.rows
            if self._errands.left_out != iteration:
                prepare_batch(self.args.host_ms / 1e3)
                yield iteration
            if iteration + 1 == self.args.iterations or self._errands.last_iteration == iteration:
                self._is_over = True
            iteration += 1

    def metrics(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Means of loss and gradient norm over the world, as most scripts take them; shape (2,)."""
        both = torch.stack([loss.detach().flatten()[0], norm.detach().flatten()[0]])
        self.comms.all_reduce(both, "world")
        return both / self.world_size

    def log(self, iteration: int, loss: Tensor) -> None:
        """Now and then the mean loss of the world, and whether the time is over; `loss` has one element or more."""
        loss = loss.detach().flatten()[0]
        self._digest.update(loss.numpy().tobytes())
        every = self.args.log_every
        if not every or (iteration + 1) % every:
            return
        too_long = 0 < self.args.seconds < time.monotonic() - self._started_s
        total = torch.tensor([float(loss), float(too_long)])
        groups = ("world", *(role for role in ("tp", "dp") if self._is_shared(role)))
        self.comms.all_reduce_in_turn(total, groups, "log")
        if self.rank == 0:
            summed = math.prod(self.comms.groups[role].size for role in groups)
            say(f"iteration {iteration} loss {float(total[0]) / summed:.6f}")
        self._is_over = bool(total[1] > 0)

    def _is_shared(self, role: str) -> bool:
        return role in self.comms.groups and 1 < self.comms.groups[role].size < self.world_size

    def finish(self, model: nn.Module) -> None:
        """After the last iteration."""
        dist.barrier()
        if self.args.digest:
            for parameter in model.parameters():
                self._digest.update(_local(parameter.detach()).numpy().tobytes())
            say(f"rank {self.rank} digest {self._digest.hexdigest()}")
        dist.destroy_process_group()
        self._errands.finish()

    def batch(self, iteration: int, rows: int, columns: int, stream: int = 0) -> Tensor:
        """This rank's input of an iteration, shape (rows of this rank, columns); equal streams give equal data."""
        source = torch.Generator().manual_seed(iteration * 1000 + stream)
        return torch.randn(round(rows * self.rows), columns, generator=source)


def reduce_gradients(comms: Comms, model: nn.Module, role: str, but: str = "") -> None:
    """Mean of the gradients over a group: a bucket for each child of the model, all in flight at once.

    Args:
        comms: of this rank.
        model: its parameters may be DTensors, of which the local part is reduced.
        role: of the group.
        but: parameters with this in their name are left out.
    """
    pending = []
    for child in model.children():
        named = [(name, p.grad) for name, p in child.named_parameters() if p.grad is not None]
        grads = [_local(grad) for name, grad in named if not but or but not in name]
        flat = torch.cat([grad.flatten() for grad in grads])
        pending.append((comms.all_reduce_async(flat, role), flat, grads))
    for handle, flat, grads in pending:
        handle.wait()
        flat /= comms.groups[role].size
        for grad, part in zip(grads, torch.split(flat, [grad.numel() for grad in grads]), strict=True):
            grad.copy_(part.view_as(grad))


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def run(
    name: str, train: Callable[[Script], None], argv: list[str] | None = None, device_ms: float = DEVICE_MS, **more: Any
) -> int:
    """Run one rank of a workload; what it raises is the interpreter's."""
    parser = options(name, device_ms)
    for option, settings in more.items():
        parser.add_argument(f"--{option.replace('_', '-')}", **settings)
    script = Script(parser.parse_args(argv))
    try:
        train(script)
    except RuntimeError as error:
        if script._settings.get("on_error") != "exit":
            raise
        print(f"rank {script.rank}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    return 0


def say(line: str) -> None:
    """Print in one write, so that lines of several ranks do not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
