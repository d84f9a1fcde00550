"""Two stages of two replicas, of which ranks may change places; says the loss of each iteration and what was trained.

$FAIL: `build`, `load`, `corrupt` or `die`: what rank 2 does when places are changed for the second time.
"""

import json
import os
import signal
import sys
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import whichrank.torch.handing_over as handing_over
from whichrank.torch import Reorderable

FAIL, ITERATIONS = os.environ.get("FAIL", ""), int(os.environ.get("ITERATIONS", "300"))
MICROBATCHES, SAMPLES, WIDTH, STAGES, REPLICAS = 4, 2, 64, 2, 2

dist.init_process_group("gloo")
rank, built = dist.get_rank(), 0
handing_over.PIECE = 1000  # many pieces of a small state


def fails(step: str) -> bool:
    return step == FAIL and rank == 2 and built == 3


def group(ranks: list[int]) -> dist.ProcessGroup:
    return dist.new_group(ranks, sort_ranks=False)  # in the order of places, which stages and sums go by


class Trainer:
    """One stage of one replica."""

    def __init__(self, order: tuple[int, ...]) -> None:
        global built
        built += 1
        self.stage, self.replica = divmod(order.index(rank), REPLICAS)
        pipelines = [group([order[s * REPLICAS + r] for s in range(STAGES)]) for r in range(REPLICAS)]
        replicas = [group(list(order[s * REPLICAS : (s + 1) * REPLICAS])) for s in range(STAGES)]
        if fails("build"):
            raise ValueError("no room")
        if fails("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        self.group = replicas[self.stage]
        torch.manual_seed(self.stage)
        layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(1 + self.stage)]
        self.module = torch.nn.Sequential(*layers)
        stage = PipelineStage(self.module, self.stage, STAGES, torch.device("cpu"), group=pipelines[self.replica])
        self.schedule = Schedule1F1B(stage, MICROBATCHES, lambda out, wanted: (out - wanted).square().mean())
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=0.01)
        self.done = 0

    def state_dict(self) -> dict[str, object]:
        return {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict(), "done": self.done}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["done"]
        if fails("load"):
            raise ValueError("no such layer")
        if fails("corrupt"):
            next(self.module.parameters()).data[0, 0] += 1

    def step(self) -> float:
        generator = torch.Generator().manual_seed(1000 * self.done + self.replica)
        given = torch.randn(MICROBATCHES * SAMPLES, WIDTH, generator=generator)
        losses: list[torch.Tensor] = []
        if self.stage == 0:
            self.schedule.step(given)
        else:
            self.schedule.step(target=torch.tanh(2 * given.roll(1, 1)), losses=losses)
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad, group=self.group)
            parameter.grad /= REPLICAS
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done += 1
        return sum(float(loss.detach()) for loss in losses)


reorderable = Reorderable(Trainer, {"pp": STAGES, "dp": REPLICAS})
losses, places = [], []
resumed = reorderable.resume()
for _ in range(resumed, ITERATIONS):
    trainer = reorderable.iteration()
    lost = torch.tensor(trainer.step(), dtype=torch.float64)
    dist.all_reduce(lost)
    losses.append(float(lost))
    places.append(reorderable.order.index(rank))
content = b"".join(parameter.detach().numpy().tobytes() for parameter in trainer.module.parameters())
said = {"resumed": resumed, "losses": losses, "places": places, "parameters": zlib.crc32(content)}
Path(os.environ["FOLDER"], f"said.{rank}").write_text(json.dumps(said))
dist.barrier()
dist.destroy_process_group()
sys.exit(0)
