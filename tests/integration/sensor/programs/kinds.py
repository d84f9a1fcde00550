"""Every kind of operation, once or a known number of times; four ranks. `test_kinds.py` knows what must be seen."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from leaving import leave
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
odd = dist.new_group([3, 1], group_desc="ODD")
uneven = dist.new_group([0, 1, 3], group_desc="UNEVEN")
unused = dist.new_group([0, 2], group_desc="UNUSED")

x = torch.ones(6)
dist.all_reduce(x)
dist.all_reduce(x.double(), op=dist.ReduceOp.MAX)
dist.all_reduce(x.bfloat16(), op=dist.ReduceOp.PRODUCT)
dist.all_reduce(x.long(), op=dist.ReduceOp.BOR)
dist.broadcast(x, src=2)
dist.reduce(x, dst=3, op=dist.ReduceOp.MIN)
dist.all_gather([torch.empty(6) for _ in range(size)], x)
dist.all_gather_into_tensor(torch.empty(6 * size), x)
dist.reduce_scatter(torch.empty(2), [torch.ones(2) for _ in range(size)])
dist.reduce_scatter_tensor(torch.empty(3), torch.ones(3 * size))
dist.gather(x, [torch.empty(6) for _ in range(size)] if rank == 1 else None, dst=1)
dist.scatter(torch.empty(5), [torch.ones(5) for _ in range(size)] if rank == 2 else None, src=2)
dist.all_to_all_single(torch.empty(8), torch.ones(8))
give = [rank + 1] * size
take = [source + 1 for source in range(size)]
dist.all_to_all_single(torch.empty(sum(take)), torch.ones(sum(give)), take, give)
dist.barrier()
dist.monitored_barrier()
dist.all_reduce_coalesced([torch.ones(2), torch.ones(3)])

objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
dist.broadcast_object_list(objects, src=0)

if rank in (1, 3):
    dist.all_reduce(torch.ones(7), group=odd)
if rank in (0, 1, 3):
    dist.broadcast(torch.ones(9), src=3, group=uneven)
dist.all_reduce(torch.ones(4), group=mesh.get_group("tp"))
dist.all_reduce(torch.ones(4), group=mesh.get_group("dp"))

waited = functional.all_reduce(torch.ones(11), "sum", dist.group.WORLD)
waited = functional.all_gather_tensor(waited, 0, dist.group.WORLD)
assert float(waited.sum()) == 11 * size * size

right, left = (rank + 1) % size, (rank - 1) % size
if rank % 2:
    dist.recv(torch.empty(3), src=left, tag=5)
    dist.send(torch.ones(3), dst=right, tag=5)
else:
    dist.send(torch.ones(3), dst=right, tag=5)
    dist.recv(torch.empty(3), src=left, tag=5)
exchange = [
    dist.P2POp(dist.isend, torch.ones(13), right),
    dist.P2POp(dist.irecv, torch.empty(13), left),
]
for work in dist.batch_isend_irecv(exchange):
    work.wait()
if rank == 0:
    for _ in range(size - 1):
        dist.recv(torch.empty(2))  # from anyone
else:
    dist.send(torch.ones(2), dst=0)
with torch.inference_mode():
    dist.all_reduce(torch.ones(17))

store = dist.distributed_c10d._get_default_store()
if rank == 3:  # so that the others have all of theirs in flight at once
    store.wait(["issued0", "issued1", "issued2"])
works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(100)]
store.set(f"issued{rank}", "")
for work in reversed(works):
    work.wait()
dist.barrier()

leave()
