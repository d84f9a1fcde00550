"""Every communication of the demo job passes here, as a value that can be looked at before it is issued.

A `Call` says what will be issued; `Comms` counts the calls of an iteration and asks at each whether the injector
wants something else done. Without an order the cost is one non-blocking `recv`. The alternative, faults written
into the training loop, was rejected: the loop would then know its own fault, and every operation could not be a
place for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from whichrank.testbed.demo.groups import Group
from whichrank.testbed.demo.seat import Seat


class Handle(Protocol):
    """What an asynchronous call returns."""

    def wait(self) -> Any:
        """Block until the call is complete."""


class Done:
    """Handle of a call that was never issued."""

    def wait(self) -> None:
        """Return at once."""


@dataclass(frozen=True, eq=False)
class Call:
    """One operation before it is issued.

    Args:
        kind: all_reduce, broadcast, all_gather, send or recv.
        group: the communicator.
        tensor: data; the result is written in place except for all_gather.
        peer: global rank of the root, the source or the destination.
        reduce_op: for all_reduce.
    """

    kind: str
    group: Group
    tensor: Tensor
    peer: int = -1
    reduce_op: Any = dist.ReduceOp.SUM

    def issue(self) -> Handle:
        """Issue it asynchronously."""
        pg = self.group.handle
        work: Any = None
        if self.kind == "all_reduce":
            work = dist.all_reduce(self.tensor, op=self.reduce_op, group=pg, async_op=True)
        elif self.kind == "broadcast":
            work = dist.broadcast(self.tensor, src=self.peer, group=pg, async_op=True)
        elif self.kind == "all_gather":
            out = [torch.empty_like(self.tensor) for _ in self.group.ranks]
            work = dist.all_gather(out, self.tensor, group=pg, async_op=True)
        elif self.kind == "send":
            work = dist.isend(self.tensor, self.peer, group=pg)
        elif self.kind == "recv":
            work = dist.irecv(self.tensor, self.peer, group=pg)
        return work if work is not None else Done()

    def block(self) -> None:
        """Issue it with the blocking form of the API, as users write it."""
        pg = self.group.handle
        if self.kind == "all_reduce":
            dist.all_reduce(self.tensor, op=self.reduce_op, group=pg)
        elif self.kind == "broadcast":
            dist.broadcast(self.tensor, src=self.peer, group=pg)
        elif self.kind == "send":
            dist.send(self.tensor, self.peer, group=pg)
        elif self.kind == "recv":
            dist.recv(self.tensor, self.peer, group=pg)
        else:
            self.issue().wait()

    def site(self) -> dict[str, Any]:
        """What is constant about it from one iteration to the next: role, size and signature."""
        signature = [self.kind, str(self.tensor.dtype), self.tensor.numel(), self.peer]
        return {"kind": self.kind, "role": self.group.role, "size": self.group.size, "signature": signature}


class Director(Protocol):
    """Decides what is done in place of a call for which an order is due."""

    def perform(self, calls: Sequence[Call], blocking: bool) -> Handle | None:
        """Do what the order says."""


class Comms:
    """The communicators of one rank and the count of its calls.

    Args:
        groups: by role, see `groups.make_groups`.
        seat: where orders come from.
        direct: makes the director for an order.
    """

    def __init__(self, groups: dict[str, Group], seat: Seat, direct: Any) -> None:
        self.groups = groups
        self.iteration = -1
        self._seat = seat
        self._direct = direct
        self._place = 0
        self._sites: list[dict[str, Any]] = []

    def begin_iteration(self, iteration: int) -> list[dict[str, Any]]:
        """Start the count anew.

        Returns:
            The sites of the iteration that has ended, in the order of the calls.
        """
        ended, self._sites = self._sites, []
        self.iteration = iteration
        self._place = 0
        return ended

    def all_reduce(self, tensor: Tensor, role: str) -> None:
        """Blocking all-reduce (SUM) over my group of `role`."""
        self._blocking(Call("all_reduce", self.groups[role], tensor))

    def all_reduce_async(self, tensor: Tensor, role: str) -> Handle:
        """Asynchronous all-reduce (SUM) over my group of `role`."""
        return self._asynchronous(Call("all_reduce", self.groups[role], tensor))

    def broadcast(self, tensor: Tensor, role: str, root: int) -> None:
        """Blocking broadcast from global rank `root`."""
        self._blocking(Call("broadcast", self.groups[role], tensor, peer=root))

    def recv(self, tensor: Tensor, source: int) -> None:
        """Blocking receive from global rank `source` over the pipeline group."""
        self._blocking(Call("recv", self.groups["pp"], tensor, peer=source))

    def send(self, tensor: Tensor, destination: int) -> None:
        """Blocking send to global rank `destination` over the pipeline group."""
        self._blocking(Call("send", self.groups["pp"], tensor, peer=destination))

    def isend(self, tensor: Tensor, destination: int, role: str = "pp") -> Handle:
        """Asynchronous send to global rank `destination` over my group of `role`."""
        return self._asynchronous(Call("send", self.groups[role], tensor, peer=destination))

    def irecv(self, tensor: Tensor, source: int, role: str) -> Handle:
        """Asynchronous receive from global rank `source` over my group of `role`."""
        return self._asynchronous(Call("recv", self.groups[role], tensor, peer=source))

    def all_reduce_in_turn(self, tensor: Tensor, roles: Sequence[str], label: str) -> None:
        """Blocking all-reduces of the same tensor over several groups, one after the other."""
        calls = [Call("all_reduce", self.groups[role], tensor) for role in roles]
        order = self._seat.order_at(self.iteration, label)
        if order is not None:
            self._direct(order, self._seat, self.iteration).perform(calls, True)
            return
        for call in calls:
            call.block()

    def _blocking(self, call: Call) -> None:
        director = self._count(call)
        if director is None:
            call.block()
        else:
            director.perform([call], True)

    def _asynchronous(self, call: Call) -> Handle:
        director = self._count(call)
        if director is None:
            return call.issue()
        return director.perform([call], False) or Done()

    def _count(self, call: Call) -> Director | None:
        place = self._place
        self._place += 1
        self._sites.append(call.site())
        order = self._seat.order_at(self.iteration, place)
        if order is None:
            return None
        director: Director = self._direct(order, self._seat, self.iteration)
        return director
