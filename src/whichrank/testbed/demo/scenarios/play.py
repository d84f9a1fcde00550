"""What all scenarios share: a rank that takes its seat, joins the job and stops at named places."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from whichrank.testbed.demo.deviations import act
from whichrank.testbed.demo.seat import Seat

DEVICE_S = 0.03


class Play:
    """One rank of a scenario.

    Args:
        places: where the injector may act on this rank; none if this rank is not a fit victim.
    """

    def __init__(self, places: tuple[str, ...]) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--iterations", type=int, default=200)
        self._iterations: int = parser.parse_args().iterations
        self.rank = int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        self._iteration = -1
        self._seat = Seat()
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._seat.greet(self.rank, places=places)
        dist.init_process_group("gloo", timeout=timedelta(minutes=10))

    def iterations(self) -> Iterator[int]:
        """Number of each iteration; leaves the job after the last."""
        for iteration in range(self._iterations):
            self._iteration = iteration
            self._seat.report("iteration", iteration=iteration)
            yield iteration
        dist.barrier()
        dist.destroy_process_group()

    def at(self, place: str) -> None:
        """A place where this rank may be told to do something else."""
        order = self._seat.order_at(self._iteration, place)
        if order is not None:
            self._seat.report("now", iteration=self._iteration, do=order.do)
            act(order)


def compute(times: int = 1) -> float:
    """A real matrix product and device time."""
    out = float((torch.randn(64, 64) @ torch.randn(64, 64)).sum())
    time.sleep(DEVICE_S * times)
    return out
