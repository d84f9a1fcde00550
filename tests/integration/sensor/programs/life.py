"""Groups come and go: 600, some held after their end, one made by a thread, then all anew; three ranks."""

import os
import threading

import torch
import torch.distributed as dist
from leaving import leave

GROUPS = 600

dist.init_process_group("gloo")
rank = dist.get_rank()
held = []
for number in range(GROUPS):
    group = dist.new_group([0, 1], group_desc=f"G{number}")
    if rank == 2:
        continue
    if number % 20 == 0:
        dist.all_reduce(torch.ones(1), group=group)
    if number % 2 == 0:
        held.append(group)  # as a model holds its group
    dist.destroy_process_group(group)

made = []
thread = threading.Thread(target=lambda: made.append(dist.new_group([0, 1, 2], group_desc="THREAD")))
thread.start()
thread.join()
work = dist.all_reduce(torch.ones(3), group=made[0], async_op=True)
waiter = threading.Thread(target=work.wait)
waiter.start()
waiter.join()

# Of this group rank 2 uses nothing; in the next life all use it, and must still agree which one it is.
pair = dist.new_group([0, 1, 2], group_desc="PAIR")
if rank < 2:
    exchange = [dist.P2POp(dist.isend, torch.ones(2), 1 - rank, pair)]
    exchange.append(dist.P2POp(dist.irecv, torch.ones(2), 1 - rank, pair))
    for work in dist.batch_isend_irecv(exchange):
        work.wait()
dist.barrier()
dist.destroy_process_group()

os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]
dist.init_process_group("gloo")
for number in range(GROUPS):  # the counter that names groups began anew
    if number == 3:
        break
    dist.new_group([0, 1], group_desc="FILLER")
dist.distributed_c10d._world.group_count = GROUPS + 2
pair = dist.new_group([0, 1, 2], group_desc="PAIR")
dist.all_reduce(torch.ones(5), group=pair)
dist.all_reduce(torch.ones(5))
dist.barrier()

leave()
