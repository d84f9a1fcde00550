"""What healthy ranks do beside training: checkpoints, evaluation, garbage collection, slow first iterations.

Each is real work (files with fsync, matrix products, the collector, the byte compiler), since a sensor may look at
CPU time and bytes written to tell it from a hang.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from whichrank.testbed.demo.deviations import ACTS, act
from whichrank.testbed.demo.seat import Order, Seat

_CHECKPOINT_TAG = 11
_BLOCK_BYTES = 4 << 20
_LOGS_S = 0.5


def write_checkpoint(duration_s: float) -> int:
    """Write files with fsync, one after the other, for `duration_s`.

    Returns:
        Bytes written; the files are removed.
    """
    written = 0
    end_s = time.monotonic() + duration_s
    block = os.urandom(_BLOCK_BYTES)
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
        while time.monotonic() < end_s:
            with (Path(folder) / "shard.bin").open("wb") as file:
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
            written += _BLOCK_BYTES
            time.sleep(0.02)
    return written


def evaluate(duration_s: float) -> float:
    """Forward passes of a small network on this rank alone."""
    end_s = time.monotonic() + duration_s
    weight = torch.randn(512, 512) / 512**0.5
    score = 0.0
    with torch.no_grad():
        while time.monotonic() < end_s:
            score = float((torch.randn(64, 512) @ weight).relu().mean())
            time.sleep(0.002)
    return score


def compile_source(duration_s: float) -> int:
    """Keep the byte compiler busy for `duration_s`, as a compiler does that runs inside the first iteration."""
    source = "\n".join(f"def f{i}(x):\n    return [x * {i} + y for y in range({i})]" for i in range(200))
    end_s = time.monotonic() + duration_s
    count = 0
    while time.monotonic() < end_s:
        compile(source, "generated", "exec")
        count += 1
    return count


def prepare_batch(cpu_s: float) -> None:
    """Compute on the host for so long, in CPU time: whoever has to share its core takes longer."""
    until_s = time.thread_time() + cpu_s
    x = torch.ones(64, 64)
    while time.thread_time() < until_s:
        x = (x @ x).tanh()


def collect_garbage(objects: int) -> int:
    """Make many objects in cycles and collect them.

    Returns:
        Number of unreachable objects found.
    """
    heap: list[list[Any]] = [[] for _ in range(objects)]
    for i, cell in enumerate(heap):
        cell.append(heap[i - 1])
    heap.clear()
    return gc.collect()


def gather_logs(*, writer: bool) -> int:
    """Gather text of all ranks, the more the higher the rank, and write it on one of them.

    Returns:
        Lines gathered.
    """
    rank = dist.get_rank()
    logs: list[list[str] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(logs, [f"rank {rank} line {line}" for line in range(1000 * (rank + 1))])
    if writer:
        write_checkpoint(_LOGS_S)
    return sum(len(lines or ()) for lines in logs)


class Errands:
    """Runs errands at the start of an iteration.

    Args:
        rank: mine.
        seat: where orders come from.
        settings: for the whole run, from `Seat.greet`: ``jitter_ms``, ``gc_every``, ``compile_s``.
        others: what else may be ordered, by name; each is called with the parameters of its order.
    """

    def __init__(
        self,
        rank: int,
        seat: Seat,
        settings: dict[str, Any],
        others: Mapping[str, Callable[[dict[str, Any]], None]] | None = None,
    ) -> None:
        self._others = others or {}
        self._seat = seat
        self._settings = settings
        self._rng = random.Random(rank)
        self._posted: tuple[int, Any, Tensor] | None = None
        self.last_iteration: int | None = None
        self.left_out: int | None = None
        self.tail_s = 0.0

    def at_start_of(self, iteration: int) -> None:
        """Do what is due before the first operation of `iteration`."""
        if iteration == 0 and self._settings.get("compile_s"):
            compile_source(float(self._settings["compile_s"]))
        if self._settings.get("jitter_ms"):
            time.sleep(self._rng.uniform(0, float(self._settings["jitter_ms"])) / 1e3)
        if self._settings.get("gc_every") and self._rng.random() < 1 / int(self._settings["gc_every"]):
            collect_garbage(400_000)
        if self._posted is not None and iteration >= self._posted[0]:
            self._posted[1].wait()
            self._posted = None
        order = self._seat.order_at(iteration, "iteration")
        if order is not None:
            self._run(order, iteration)

    def _run(self, order: Order, iteration: int) -> None:
        params = order.params
        self._seat.report("now", iteration=iteration, do=order.do)
        if order.do == "checkpoint":
            if params["writer"]:
                write_checkpoint(params["duration_s"])
            if params["barrier"]:
                dist.barrier()
        elif order.do == "gather-logs":
            gather_logs(writer=params["writer"])
        elif order.do == "evaluate":
            evaluate(params["duration_s"])
        elif order.do == "post-receive":
            buffer = torch.empty(8)
            work = dist.irecv(buffer, params["source"], tag=_CHECKPOINT_TAG)
            self._posted = (params["until"], work, buffer)
        elif order.do == "send-late":
            dist.send(torch.ones(8), params["destination"], tag=_CHECKPOINT_TAG)
        elif order.do == "finish":
            self.last_iteration = iteration
            self.tail_s = float(params["tail_s"])
        elif order.do == "skip-iteration":
            self.left_out = iteration
        elif order.do in self._others:
            self._others[order.do](params)
        elif order.do in ACTS:
            act(order)

    def finish(self) -> None:
        """Local work after the last iteration, without communication."""
        if self.tail_s > 0:
            evaluate(self.tail_s)
