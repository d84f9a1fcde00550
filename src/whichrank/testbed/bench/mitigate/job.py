"""The program of `bench mitigate`: stages of replicas that share out microbatches and can change places.

A microbatch takes $MICROBATCH_MS in each stage, asleep, a third of it forward; times what $FOLDER/slow.json says of the
rank. Gradients have $GRADIENT_MIB. Each rank writes a line of JSON for each iteration. It ends when $FOLDER/stop is
there; with $STEPS after so many, and writes what it has trained.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from whichrank.torch import Balancer, Reorderable

FOLDER = Path(os.environ["FOLDER"])
STAGES, REPLICAS, EACH = (int(os.environ[name]) for name in ("STAGES", "REPLICAS", "EACH"))
MICROBATCH_S = float(os.environ["MICROBATCH_MS"]) / 1000.0
GRADIENTS = int(float(os.environ["GRADIENT_MIB"]) * (1 << 18))
STEPS = int(os.environ.get("STEPS", "0"))
REPLICAS_FIRST = os.environ.get("ORDER") == "dp"
MESH = {"dp": REPLICAS, "pp": STAGES} if REPLICAS_FIRST else {"pp": STAGES, "dp": REPLICAS}
WIDTH, SAMPLES = 512, 16
"""Of a microbatch: 32 KiB go from stage to stage."""
SLOW = FOLDER / "slow.json"


class Slow:
    """How much longer this rank takes, read anew when the file has changed."""

    def __init__(self, rank: int) -> None:
        self.rank, self.factor, self._stamp = str(rank), 1.0, 0

    def look(self) -> float:
        """Once in an iteration."""
        try:
            stamp = SLOW.stat().st_mtime_ns
            if stamp != self._stamp:
                self.factor, self._stamp = float(json.loads(SLOW.read_text()).get(self.rank, 1.0)), stamp
        except FileNotFoundError:
            self.factor, self._stamp = 1.0, 0
        return self.factor


class Work(torch.autograd.Function):
    """Takes as long as the device of this rank does."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, slow: Slow) -> torch.Tensor:  # noqa: D102
        ctx.slow = slow
        time.sleep(MICROBATCH_S * slow.factor / 3)
        return given.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: D102
        time.sleep(MICROBATCH_S * ctx.slow.factor * 2 / 3)
        return gradient, None


class Layer(torch.nn.Module):
    """One stage; most of its parameters are there for their gradients."""

    def __init__(self, slow: Slow) -> None:
        super().__init__()
        self.linear, self.slow = torch.nn.Linear(WIDTH, WIDTH), slow
        self.bulk = torch.nn.Parameter(torch.zeros(max(GRADIENTS, 1)))

    def forward(self, given: torch.Tensor) -> torch.Tensor:  # noqa: D102
        out: torch.Tensor = Work.apply(  # type: ignore[no-untyped-call]
            torch.tanh(self.linear(given)) + 1e-9 * self.bulk[:WIDTH].sum(), self.slow
        )
        return out


class Trainer:
    """One stage of one replica."""

    def __init__(self, order: tuple[int, ...]) -> None:
        rank = dist.get_rank()
        pipelines = [_group([order[_place(s, r)] for s in range(STAGES)]) for r in range(REPLICAS)]
        replicas = [_group([order[_place(s, r)] for r in range(REPLICAS)]) for s in range(STAGES)]
        at = order.index(rank)
        self.stage = at % STAGES if REPLICAS_FIRST else at // REPLICAS
        self.replica = at // STAGES if REPLICAS_FIRST else at % REPLICAS
        self.slow, self.group = Slow(rank), replicas[self.stage]
        torch.manual_seed(self.stage)
        self.module = Layer(self.slow)
        self.balancer = Balancer(EACH, self.group, multiple=STAGES)
        self.pipeline = pipelines[self.replica]
        device = torch.device("cpu")
        self.part = PipelineStage(self.module, self.stage, STAGES, device, group=self.pipeline) if STAGES > 1 else None
        self.schedules: dict[int, Schedule1F1B] = {}
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01, momentum=0.9)
        self.done = 0

    def state_dict(self) -> dict[str, Any]:
        """All that another rank needs."""
        return {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict(), "done": self.done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["done"]

    def step(self) -> float:
        """One iteration; the sum of losses."""
        self.slow.look()
        numbers = list(self.balancer.iteration()) if self.part else self.balancer.iteration()
        lost = self._piped(list(numbers)) if self.part else sum(map(self._computed, numbers))
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in self.module.parameters()])  # type: ignore[union-attr]
        dist.all_reduce(flat, group=self.group)
        at = 0
        for parameter in self.module.parameters():
            parameter.grad = (flat[at : at + parameter.numel()] / REPLICAS).view_as(parameter)
            at += parameter.numel()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done += 1
        return lost

    def _sample(self, number: int) -> torch.Tensor:
        return torch.randn(
            SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1_000_000 + self.done * 1000 + number)
        )

    def _computed(self, number: int) -> float:
        given = self._sample(number)
        loss = (self.module(given) - given.roll(1, 1)).square().mean()
        (loss / EACH).backward()
        return float(loss.detach())

    def _piped(self, numbers: list[int]) -> float:
        count = len(numbers)
        if count not in self.schedules:
            loss_of = lambda out, wanted: (out - wanted).square().mean() * count / EACH  # noqa: E731
            self.schedules[count] = Schedule1F1B(self.part, count, loss_of)  # type: ignore[arg-type]
        self.part.chunks = count  # type: ignore[union-attr]
        given, losses = torch.cat([self._sample(number) for number in numbers]), list[torch.Tensor]()
        if self.stage == 0:
            self.schedules[count].step(given)
        else:
            target = given.roll(1, 1) if self.stage == STAGES - 1 else None
            self.schedules[count].step(target=target, losses=losses if target is not None else None)
        return sum(float(loss.detach()) * EACH / count for loss in losses)


def _place(stage: int, replica: int) -> int:
    return replica * STAGES + stage if REPLICAS_FIRST else stage * REPLICAS + replica


def _group(ranks: list[int]) -> Any:
    return dist.new_group(ranks, sort_ranks=False)


def main() -> None:
    """Train until the end."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    reorderable = Reorderable(Trainer, MESH, microbatches=EACH)
    began_s = time.time()
    if reorderable.resume():
        (FOLDER / f"resumed.{rank}").write_text(str(time.time() - began_s))
    stop = torch.zeros(1)
    losses = []
    with (FOLDER / f"iterations.{rank}").open("w", buffering=1) as file:
        while not stop:
            began_s = time.time()
            trainer = reorderable.iteration()
            lost = trainer.step()
            share = trainer.balancer.share
            print(json.dumps({"at": began_s, "s": time.time() - began_s, "count": share[1], "slow": trainer.slow.factor,
                              "place": reorderable.order.index(rank)}), file=file)  # fmt: skip
            losses.append(lost)
            stop += rank == 0 and ((FOLDER / "stop").exists() or (STEPS > 0 and trainer.done >= STEPS))
            dist.all_reduce(stop)
    (FOLDER / f"losses.{rank}").write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.exit(0)
