"""Plain point-to-point: blocking send/recv down a chain, then a halo exchange with batch_isend_irecv."""

import argparse
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Pass tensors between neighbours."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world_size, (rank + 1) % world_size

    for step in range(steps):
        state = torch.full((256,), float(step))
        if rank > 0:
            dist.recv(state, left)
        time.sleep(0.005)
        if rank < world_size - 1:
            dist.send(state + 1, right)

        from_left, from_right = torch.empty(256), torch.empty(256)
        exchange = [
            dist.P2POp(dist.isend, state, left),
            dist.P2POp(dist.irecv, from_right, right),
            dist.P2POp(dist.isend, state, right),
            dist.P2POp(dist.irecv, from_left, left),
        ]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        time.sleep(0.01)
        if step % 10 == 0 and rank == world_size - 1:
            print(f"step {step} state {state[0].item():.0f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
