"""Sums of one size, then a round in which one rank has another size; which members it stops depends on the sizes.

Usage: sizes.py DEVIANT ITS_SIZE OTHER_SIZE
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

deviant, mine, theirs = map(int, sys.argv[1:])
dist.init_process_group("gloo")
for step in range(100_000):
    size = 400 if step != 40 else mine if dist.get_rank() == deviant else theirs
    dist.all_reduce(torch.ones(size))
    time.sleep(0.02)
