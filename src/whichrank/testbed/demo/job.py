"""The demo job: trains a small network with tensor, pipeline and data parallelism over Gloo.

Run it with torchrun, or fork its ranks with `whichrank.testbed.demo.launcher`::

    torchrun --nproc-per-node 8 -m whichrank.testbed.demo.job --layout tp2-pp2-dp2 --iterations 100

One iteration: microbatches through the pipeline (all-reduces over tp in each layer, send/recv over pp), gradients
reduced over dp in buckets, asynchronously, an optimizer step, a broadcast of the loss, and every `--log-every`
iterations the loss of the world. It takes 100 to 200 ms with the defaults. It is an ordinary job: it knows nothing
of faults, hang timeouts or sensors.

In layouts with two roles or more one communicator carries all-reduces of a single signature (tp, else dp) and
another carries several, as in real jobs: an operation left out of the first shows in no signature.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore

from whichrank.testbed.demo.comms import Comms
from whichrank.testbed.demo.deviations import Deviation
from whichrank.testbed.demo.drag import Drag
from whichrank.testbed.demo.errands import Errands, prepare_batch
from whichrank.testbed.demo.groups import STYLES, Group, make_groups
from whichrank.testbed.demo.layout import Layout
from whichrank.testbed.demo.model import PASSES, ROWS, Stage
from whichrank.testbed.demo.pipeline import SCHEDULES, Pipeline
from whichrank.testbed.demo.seat import Seat

_SITES_OF_ITERATION = 3
_MAX_NORM = 10.0


def options() -> argparse.ArgumentParser:
    """Command line of the job."""
    parser = argparse.ArgumentParser(
        prog="whichrank.testbed.demo.job", description="A real DP x TP x PP training job on CPU."
    )
    parser.add_argument("--layout", type=Layout.parse, default=Layout(tp=2, pp=2, dp=2), help="e.g. tp2-pp2-dp2")
    parser.add_argument("--iterations", type=int, default=0, help="stop after so many; 0: no limit")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop at the next log after so long; 0: no limit")
    parser.add_argument("--group-timeout-s", type=float, default=600.0, help="timeout of every communicator")
    parser.add_argument("--groups", choices=STYLES, default="mesh", help="how the communicators are made")
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--microbatches", type=int, default=0, help="0: four with a pipeline, else two")
    parser.add_argument("--layers", type=int, default=4, help="over all pipeline stages")
    parser.add_argument(
        "--device-ms", type=float, default=2.0, help="device time of a layer forward; twice that backward"
    )
    parser.add_argument("--host-ms", type=float, default=0.0, help="CPU time that a rank needs to prepare a batch")
    parser.add_argument("--log-every", type=int, default=10, help="iterations between world-level logs; 0: never")
    parser.add_argument("--reinit-at", type=int, default=0, help="destroy and make all groups again at this iteration")
    parser.add_argument("--digest", action="store_true", help="print a digest of losses and parameters at the end")
    return parser


class Job:
    """One rank of the job."""

    def __init__(self, args: argparse.Namespace, rank: int, seat: Seat, settings: dict[str, Any]) -> None:
        layout: Layout = args.layout
        self._args = args
        self._layout = layout
        self._rank = rank
        self._seat = seat
        self._errands = Errands(rank, seat, settings)
        self._comms = Comms(self._make_groups(), seat, Deviation)
        torch.manual_seed(layout.index(rank, "pp") * 64 + layout.index(rank, "tp"))
        layers = _layers(args)
        self._stage = Stage(self._comms, layers, layout.tp, args.device_ms / 1e3)
        self._drag = Drag(seat, settings, self._stage)
        microbatches = _microbatches(args)
        self._pipeline = Pipeline(layout, rank, self._comms, self._stage, microbatches, ROWS, args.schedule)
        self._optimizer = torch.optim.SGD(self._stage.parameters(), lr=0.05, momentum=0.9)
        self._started_s = time.monotonic()
        self._digest = hashlib.sha256()

    def train(self) -> None:
        """Iterate until the limit."""
        iteration = 0
        while True:
            sites = self._comms.begin_iteration(iteration)
            extra = {"sites": sites} if iteration == _SITES_OF_ITERATION + 1 else {}
            self._seat.report("iteration", iteration=iteration, **extra)
            if self._args.reinit_at and iteration == self._args.reinit_at:
                self._reinitialise(iteration)
            self._errands.at_start_of(iteration)
            self._drag.at_start_of(iteration)
            self._pipeline.rows = round(ROWS * self._drag.rows)
            prepare_batch(self._args.host_ms / 1e3)
            loss = self._step(iteration)
            stop = self._log(iteration, loss)
            if stop or iteration + 1 == self._args.iterations or self._errands.last_iteration == iteration:
                break
            iteration += 1
        dist.barrier()
        if self._args.digest:
            self._print_digest()
        dist.destroy_process_group()
        self._errands.finish()

    def _make_groups(self) -> dict[str, Group]:
        return make_groups(self._layout, self._rank, self._args.groups, self._args.group_timeout_s)

    def _step(self, iteration: int) -> Tensor:
        self._optimizer.zero_grad()
        loss = self._pipeline.run(iteration)
        if self._layout.dp > 1:
            self._reduce_gradients()
        if self._layout.pp > 1 and (self._layout.tp == 1 or self._layout.dp == 1):
            self._clip_gradients()
        self._optimizer.step()
        role = next((role for role in ("pp", "dp", "tp") if self._layout.degree(role) > 1), "world")
        self._comms.broadcast(loss, role, root=self._comms.groups[role].ranks[-1])
        self._digest.update(loss.numpy().tobytes())
        return loss

    def _reduce_gradients(self) -> None:
        pending = []
        for bucket in self._stage.buckets(ragged=self._layout.tp > 1):
            grads = [p.grad for p in bucket if p.grad is not None]
            flat = torch.cat([g.flatten() for g in grads])
            pending.append((self._comms.all_reduce_async(flat, "dp"), flat, grads))
        for handle, flat, grads in pending:
            handle.wait()
            flat /= self._layout.dp
            for grad, part in zip(grads, torch.split(flat, [g.numel() for g in grads]), strict=True):
                grad.copy_(part.view_as(grad))

    def _clip_gradients(self) -> None:
        parameters = [p for p in self._stage.parameters() if p.grad is not None]
        norm = torch.stack([p.grad.square().sum() for p in parameters if p.grad is not None]).sum().reshape(1)
        self._comms.all_reduce(norm, "pp")
        scale = min(1.0, _MAX_NORM / (float(norm) ** 0.5 + 1e-6))
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad *= scale

    def _log(self, iteration: int, loss: Tensor) -> bool:
        every = self._args.log_every
        if not every or (iteration + 1) % every:
            return False
        too_long = 0 < self._args.seconds < time.monotonic() - self._started_s
        total = torch.tensor([float(loss), float(too_long)])
        local = next((role for role in ("tp", "dp", "pp") if self._layout.degree(role) > 1), "world")
        self._comms.all_reduce_in_turn(total, (local, "world") if local != "world" else ("world",), "log")
        if (iteration + 1) % (2 * every) == 0:
            rows: list[Any] = [None] * self._layout.world_size
            dist.all_gather_object(rows, {"rank": self._rank, "iteration": iteration, "loss": float(loss)})
        if self._rank == 0:
            _say(f"iteration {iteration} loss {float(total[0]) / self._layout.world_size:.6f}")
        return bool(total[1] > 0)

    def _reinitialise(self, iteration: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group(
            "gloo",
            store=PrefixStore(f"again-{iteration}", store),
            rank=self._rank,
            world_size=self._layout.world_size,
            timeout=timedelta(seconds=self._args.group_timeout_s),
        )
        self._comms.groups.clear()
        self._comms.groups.update(self._make_groups())

    def _print_digest(self) -> None:
        for parameter in self._stage.parameters():
            self._digest.update(parameter.detach().numpy().tobytes())
        _say(f"rank {self._rank} digest {self._digest.hexdigest()}")


def _layers(args: argparse.Namespace) -> int:
    """Of one pipeline stage."""
    return max(1, int(args.layers) // int(args.layout.pp))


def _microbatches(args: argparse.Namespace) -> int:
    return int(args.microbatches) or (4 if args.layout.pp > 1 else 2)


def _say(line: str) -> None:
    """Print in one write, so that lines of several ranks do not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(argv: list[str] | None = None) -> int:
    """Run one rank; its number and the size of the world come from the environment, as torchrun sets them."""
    args = options().parse_args(argv)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if args.layout.world_size != world_size:
        print(f"layout {args.layout.name} needs {args.layout.world_size} ranks, got {world_size}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    seat = Seat()
    device_s = _layers(args) * _microbatches(args) * PASSES * args.device_ms / 1e3
    settings = seat.greet(rank, log_every=args.log_every, schedule=args.schedule, device_s=device_s)
    time.sleep(float(settings.get("prepare_s", 0)))
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.group_timeout_s))
    try:
        Job(args, rank, seat, settings).train()
    except RuntimeError as error:
        if settings.get("on_error") != "exit":
            raise
        print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
