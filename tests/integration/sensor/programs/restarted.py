"""Fails on rank 1 in its first life; ends well in its second."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    raise RuntimeError("first life")
dist.barrier()
dist.destroy_process_group()
