"""One rank, one operation."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
print("done")
