"""A training loop at 500 operations a second: most on a group of one, as where tensor parallelism is 1.

An iteration takes a second: twenty steps, each an all-reduce of all ranks and 24 operations on the group of one. The
gradient's all-reduce at its end is waited for only after the next iteration, so a rank that leaves one operation
out is one operation apart from then on, and nothing hangs.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS, OWN_OPERATIONS, STEP_S = 20, 24, 0.05
LEAVES_OUT_STEP = 7


def train(rank: int, folder: Path) -> None:
    """Train until told to finish; the rank that the file `leave-out-RANK` names leaves one all-reduce out, once."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gradients = dist.new_group(group_desc="dp")
    alone = dist.new_group([rank], use_local_synchronization=True, group_desc="tp")
    assert alone is not None
    reported, left_out = folder / f"leave-out-{rank}", False
    previous: dist.Work | None = None
    finish = flag = torch.zeros(1)
    next_s = time.monotonic()
    while not finish.item():
        leaves_out = reported.exists() and not left_out
        left_out |= leaves_out
        for step in range(STEPS):
            if not (leaves_out and step == LEAVES_OUT_STEP):
                dist.all_reduce(torch.ones(64))
            for operation in range(OWN_OPERATIONS):
                dist.all_reduce(torch.ones(1 + OWN_OPERATIONS * step + operation), group=alone)
            next_s = max(next_s + STEP_S, time.monotonic() - STEP_S)
            time.sleep(max(0.0, next_s - time.monotonic()))
        if previous is not None:
            previous.wait()
            finish = flag
        flag = torch.full((1,), float((folder / "finish").exists()))
        previous = dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=gradients, async_op=True)
    if previous is not None:
        previous.wait()
    dist.destroy_process_group()
