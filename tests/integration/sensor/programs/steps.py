"""Two optimizers for the two halves of a model, gradient accumulation, and at last a step that is compiled."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
halves = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)]


class Wrapper(torch.optim.SGD):
    """An optimizer that steps another one inside its own step, with an operation behind it, as ZeRO does."""

    def step(self, closure=None):
        inner.step()
        dist.all_reduce(torch.ones(1))


inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
wrapper = Wrapper([torch.nn.Parameter(torch.ones(1))], lr=0.1)
optimizers = [torch.optim.SGD(halves[0].parameters(), lr=0.1), torch.optim.AdamW(halves[1].parameters())]


def accumulate() -> None:
    for _ in range(3):
        loss = halves[1](halves[0](torch.ones(2, 4))).sum()
        loss.backward()
        dist.all_reduce(torch.ones(1))


for _ in range(5):
    accumulate()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


wrapper.step()


@torch.compile(backend="aot_eager")
def compiled_step() -> None:
    optimizers[0].step()


for _ in range(3):
    accumulate()
    compiled_step()
dist.destroy_process_group()
