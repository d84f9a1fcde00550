"""Backward passes of losses over tensors of several shapes, told by the shapes or by the program itself."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import whichrank

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Model(nn.Module):
    """A transformer of one layer, with a head for each token or for the first of each sequence."""

    def __init__(self, *, per_token: bool) -> None:
        super().__init__()
        self.per_token = per_token
        self.embedding = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(self.embedding(tokens))
        return self.head(hidden if self.per_token else torch.tanh(hidden[:, 0]))


def loss_of(model: nn.Module, rows: int, length: int) -> torch.Tensor:
    tokens = torch.randint(0, 50, (rows, length))
    out = model(tokens)
    loss: torch.Tensor = nn.functional.cross_entropy(out.view(-1, 50), tokens.view(-1)[: out.numel() // 50])
    return loss


language, classifier = Model(per_token=True), nn.parallel.DistributedDataParallel(Model(per_token=False))
for _ in range(2):
    loss_of(language, 3, 5 + rank).backward()  # (3, 5, 50)
    loss_of(classifier, 4, 7).backward()  # (4, 7, 16)
    (loss_of(language, 2, 8) / 2).backward()  # accumulated
torch.autograd.backward([nn.Linear(4, 4)(torch.ones(2, 3, 4))], [torch.ones(2, 3, 4)])  # a stage of a pipeline
nn.functional.mse_loss(nn.Linear(4, 6)(torch.ones(9, 4)), torch.zeros(9, 6)).backward()
inner = nn.Linear(4, 4)
checkpoint(inner, torch.ones(9, 4, requires_grad=True), use_reentrant=True).sum().backward()  # one within it
torch.ones((), requires_grad=True).backward()  # of nothing
compiled = torch.compile(lambda x: (x * x).sum(), backend="eager")
compiled(torch.ones(2, 2, 2, requires_grad=True)).backward()
whichrank.tokens(123, length=45)  # from here on the program says it
loss_of(language, 3, 5).backward()
dist.barrier()
dist.destroy_process_group()
