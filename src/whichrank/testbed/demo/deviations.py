"""What a rank does when an order reaches it at one of its operations.

Two kinds. *Changes* turn the calls of the script into other calls (another shape, none, one twice); *acts* happen
before the call, or right after it was issued (stop, sleep, exit). Names here are what a stack of the culprit shows,
so they are plain words for what the process does and not the names of the faults.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from whichrank.testbed.demo.comms import Call, Handle
from whichrank.testbed.demo.seat import Order, Seat

_FOREVER_S = 3600


def _twice_as_long(tensor: Tensor) -> Tensor:
    return tensor.flatten().repeat(2)


def _half_as_long(tensor: Tensor) -> Tensor:
    return tensor.flatten()[: max(1, tensor.numel() // 2)].clone()


def _other_peer(call: Call) -> int:
    """The next neighbour of root or receiver, so that also a group of two has two roots or none."""
    ranks = call.group.ranks
    return ranks[(ranks.index(call.peer) + 1) % len(ranks)]


def _other_kind(call: Call, variant: str) -> Call:
    if variant == "all-gather":
        return replace(call, kind="all_gather", tensor=call.tensor.clone())
    return replace(call, kind="broadcast", tensor=call.tensor.clone(), peer=call.group.ranks[0])


def change(order: Order, calls: Sequence[Call]) -> list[Call] | None:
    """Calls to issue in place of `calls`, or None if the order is not about what is issued."""
    call, variant = calls[0], order.variant
    if order.do == "skip-op":
        return []
    if order.do == "repeat-op":
        return [call, replace(call, tensor=call.tensor.clone())]
    if order.do == "wrong-order":
        return list(reversed(calls))
    if order.do == "wrong-shape":
        resize = _twice_as_long if variant.startswith("larger") else _half_as_long
        return [replace(call, tensor=resize(call.tensor))]
    if order.do == "wrong-dtype":
        return [replace(call, tensor=call.tensor.to(torch.float64 if variant == "wider" else torch.int32))]
    if order.do == "wrong-op":
        return [_other_kind(call, variant)]
    if order.do == "wrong-reduce-op":
        return [replace(call, reduce_op=dist.ReduceOp.MAX)]
    if order.do in ("wrong-root", "wrong-peer"):
        return [replace(call, peer=_other_peer(call))]
    return None


def sleep(_order: Order) -> None:
    """Sleep as a script does that waits for something that does not come."""
    time.sleep(_FOREVER_S)


def sleep_in_c(_order: Order) -> None:
    """Sleep inside a C call that keeps the GIL, as a faulty extension does."""
    ctypes.PyDLL(None).sleep(_FOREVER_S)


def spin(_order: Order) -> None:
    """Compute without end."""
    total = 0
    while True:
        total = (total * 31 + 7) % 1_000_003


def leave(order: Order) -> None:
    """End the process on its own account."""
    if order.variant.startswith("sys-exit"):
        sys.exit(0)
    os._exit(3)


def abort(_order: Order) -> NoReturn:
    """End the process as a failed assertion in C does."""
    os.abort()


def check_data(_order: Order) -> NoReturn:
    """Raise as a training script does that meets data that it cannot use."""
    raise ValueError("batch 17: 3 of 16 labels are outside the vocabulary")


def allocate(order: Order) -> None:
    """Grow until something stops it, or up to `limit_mib`."""
    blocks: list[bytearray] = []
    while len(blocks) * 8 < order.params.get("limit_mib", 1 << 20):
        block = bytearray(8 << 20)
        block[::4096] = b"x" * len(block[::4096])
        blocks.append(block)
    time.sleep(_FOREVER_S)


def stop(_order: Order) -> None:
    """Stop this process, as a signal from outside does."""
    os.kill(os.getpid(), signal.SIGSTOP)


def linger(order: Order) -> None:
    """Stay between two operations for as long as the injector needs to act from outside."""
    time.sleep(order.params.get("linger_s", 1.0))


def read_pipe(_order: Order) -> None:
    """Read as a script does whose data come from another program that does not write."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches"
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR)  # for reading only it would wait here, and the folder would stay
    os.read(pipe, 1)


class _Stuck(Dataset[int]):
    """Data that never come; a worker ends with its rank."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        rank = os.getppid()
        while os.getppid() == rank:
            time.sleep(0.5)
        return index


def wait_for_batch(_order: Order) -> None:
    """Wait for a worker that loads data."""
    next(iter(DataLoader(_Stuck(), batch_size=None, num_workers=1)))


ACTS: dict[str, Callable[[Order], None]] = {
    "sleep": sleep,
    "sleep-gil": sleep_in_c,
    "spin": spin,
    "exit": leave,
    "abort": abort,
    "raise": check_data,
    "oom-kill": allocate,
    "linger": linger,
    "read-pipe": read_pipe,
    "wait-for-batch": wait_for_batch,
    "stop": stop,
}


class Deviation:
    """Performs one order in place of the call at which it was due.

    Args:
        order: what to do.
        seat: where to say that it happens now.
        iteration: of the training script.
    """

    def __init__(self, order: Order, seat: Seat, iteration: int) -> None:
        self._order = order
        self._seat = seat
        self._iteration = iteration

    def perform(self, calls: Sequence[Call], blocking: bool) -> Handle | None:
        """Act, then issue what is to be issued; returns the handle of the last call where the script wants one."""
        self._seat.report("now", iteration=self._iteration, do=self._order.do)
        changed = change(self._order, calls)
        if self._order.do == "stop-in-op":
            return _issue_and_stop(calls[0])
        if changed is None:
            act(self._order)
        handle: Handle | None = None
        for call in calls if changed is None else changed:
            if blocking:
                call.block()
            else:
                handle = call.issue()
        return handle


def _issue_and_stop(call: Call) -> Handle:
    handle = call.issue()
    os.kill(os.getpid(), signal.SIGSTOP)
    handle.wait()
    return handle


def act(order: Order) -> None:
    """Do what the order says, outside any operation."""
    ACTS[order.do](order)
