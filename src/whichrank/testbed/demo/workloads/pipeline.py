"""torch.distributed.pipelining: one stage per rank, GPipe or 1F1B."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


class Part(nn.Module):
    """The layers of one stage."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (batch, width) in and out."""
        time.sleep(0.005)
        return torch.relu(self.linear(x))


def loss_fn(out: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return (out - target).square().mean()


def main() -> None:
    """Train a pipeline of as many stages as there are ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="1f1b")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, stages = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)

    part = Part(64)
    stage = PipelineStage(part, rank, stages, torch.device("cpu"))
    kind = ScheduleGPipe if args.schedule == "gpipe" else Schedule1F1B
    schedule = kind(stage, n_microbatches=2 * stages, loss_fn=loss_fn)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.01)

    batch = 4 * stages
    for step in range(args.steps):
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(torch.randn(batch, 64))
        elif rank == stages - 1:
            losses: list[Tensor] = []
            schedule.step(target=torch.ones(batch, 64), losses=losses)
            if step % 10 == 0:
                print(f"step {step} loss {torch.stack(losses).mean().item():.4f}", flush=True)
        else:
            schedule.step()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
