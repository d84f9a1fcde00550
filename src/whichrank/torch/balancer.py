"""Shares out the microbatches of an iteration: a replica that has become slow computes fewer of them, the others more.

The sum of gradients stays the same. In gradient accumulation each microbatch of a replica counts 1/m, with m of them,
and replicas count 1/D: so each of M = m * D counts 1/M, whoever computes it. Nothing depends on m but this number,
and so a replica may compute any of the M, if together all are computed once.

Who computes what is told from outside, by way of shared memory, while training goes on. All ranks must change at the
same iteration, so they agree on it: each says which version it has been told, and the least of these is used. That
takes two numbers over a process group of its own on the CPU, which waits for no device and takes part in nothing that
the program does. While all share evenly they are sent as an iteration begins, and count for the next one: nobody waits
for them. While some have more than others they count for the same iteration, so that shares are given back in time.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

from whichrank.errors import UsageError
from whichrank.torch.own_shares import OwnShares


class Balancer:
    """Of all ranks of a job; make it on all of them, behind `init_process_group`.

    Args:
        microbatches: That a replica computes in an iteration while all share evenly.
        group: The process group of the ranks that do the same in all replicas; of plain data parallelism all ranks.
        multiple: Of which each share must be one, where a schedule of a pipeline needs that.
        ahead: Iterations by which data are read ahead: shares are agreed on so many iterations before they are used.

    Raises:
        UsageError: An argument makes no sense.

    Example:
        Each of the ranks that `torchrun` starts computes eight microbatches of sixteen samples::

            balancer = Balancer(8)
            batches = iter(DataLoader(dataset, batch_sampler=balancer.sampler(len(dataset), 16)))
            for _ in range(steps):
                for _ in balancer.iteration(model):
                    inputs, labels = next(batches)
                    (loss_of(model(inputs), labels) / 8).backward()
                optimizer.step()
                optimizer.zero_grad()
    """

    def __init__(self, microbatches: int, group: Any = None, *, multiple: int = 1, ahead: int = 0) -> None:
        import torch
        import torch.distributed as dist

        if microbatches < 1 or multiple < 1 or microbatches % multiple:
            what = f"a replica cannot compute {microbatches} microbatches in an iteration, in multiples of {multiple}"
            raise UsageError(what, mend="Balancer(8)")
        if ahead < 0:
            raise UsageError(f"data cannot be read {ahead} iterations ahead", mend="Balancer(8, ahead=1)")
        replica, replicas = dist.get_rank(group), dist.get_world_size(group)
        if replica < 0:
            raise UsageError("this rank is not in the group of replicas", mend="Balancer(8, data_parallel_group)")
        self.microbatches, self.ahead = microbatches, ahead
        self.total = microbatches * replicas
        self._even = replica * microbatches, microbatches
        self._told = OwnShares(self.total, multiple, replica, replicas)
        self._dist, self._votes = dist, dist.new_group(backend="gloo", group_desc="whichrank_shares")
        self._ballot = torch.zeros(2, dtype=torch.int64)
        self._vote: Any = None
        self._version = 0
        self._are_all_even = True
        self._begun = 0
        self._decided: deque[tuple[int, int]] = deque([self._even] * (ahead + 1))  # from the latest begun iteration on

    @property
    def share(self) -> tuple[int, int]:
        """Of the latest iteration that has begun: number of the first microbatch of this replica, and how many."""
        return self._decided[0]

    def iteration(self, *models: Any) -> Iterator[int]:
        """The numbers of the microbatches that this replica computes in this iteration, from 0 over all replicas.

        Args:
            models: Wrapped by `DistributedDataParallel` or `fully_shard`: gradients are exchanged with the last
                microbatch only. Parameters that are sharded are gathered once in an iteration and kept until its end:
                replicas with other numbers of microbatches would gather them another number of times.

        Raises:
            UsageError: Of such a model shares cannot be changed.
        """
        for model in models:
            if type(model).__name__ == "FullyShardedDataParallel":
                what = "FullyShardedDataParallel gathers parameters for each microbatch, so all replicas need as many"
                raise UsageError(what, mend="use torch.distributed.fsdp.fully_shard")
        self._begin()
        first, count = self.share
        for model in models:
            if hasattr(model, "set_reshard_after_forward"):
                model.set_reshard_after_forward(False)
        for number in range(first, first + count):
            with contextlib.ExitStack() as stack:
                if number < first + count - 1:
                    for model in models:
                        stack.enter_context(_without_exchange(model))
                yield number

    def sampler(
        self, size: int, samples: int, *, shuffle: bool = True, seed: int = 0, skip: int = 0
    ) -> Iterator[list[int]]:
        """For `DataLoader(batch_sampler=...)`: the samples of each microbatch of this replica, epoch after epoch.

        All replicas together get all samples of an epoch once, whoever computes them, but for those that are left
        over at its end. Which samples are in which iteration does not depend on shares.

        Args:
            size: Samples of the data set.
            samples: In a microbatch.
            shuffle: Another order in each epoch.
            seed: For that; the same on all ranks.
            skip: Iterations that were done before, of a job that goes on from a checkpoint.

        Raises:
            UsageError: The data set is too small, or data are read further ahead than was said.
        """
        import torch

        iterations = size // (self.total * samples)
        if not iterations:
            what = f"{size} samples are fewer than an iteration takes: {self.total} microbatches of {samples}"
            raise UsageError(what, mend="take smaller microbatches")
        done, (epoch, begin) = 0, divmod(skip, iterations)
        while True:
            generator = torch.Generator().manual_seed(seed + epoch)
            order = torch.randperm(size, generator=generator) if shuffle else torch.arange(size)
            for within in range(begin, iterations):
                first, count = self._share_of(done)
                for number in range(first, first + count):
                    at = (within * self.total + number) * samples
                    yield order[at : at + samples].tolist()
                done += 1
            epoch, begin = epoch + 1, 0

    def _share_of(self, iteration: int) -> tuple[int, int]:
        """Of an iteration that has begun or is read ahead."""
        at = iteration - max(self._begun - 1, 0)
        if at >= len(self._decided):
            what = f"data are read {at} iterations ahead, and shares are agreed on {self.ahead} ahead"
            raise UsageError(what, mend=f"Balancer({self.microbatches}, ahead={at})")
        return self._decided[at]

    def _begin(self) -> None:
        """Take what was agreed on, and agree on what comes next."""
        if self._vote is not None:
            self._take_vote()
        if not self._are_all_even:
            self._call_vote()
            self._take_vote()
        if self._begun:
            self._decided.popleft()
            self._decided.append(self._told.of(self._version) if self._version else self._even)
        self._begun += 1
        if self._are_all_even:
            self._call_vote()

    def _call_vote(self) -> None:
        self._ballot[0], self._ballot[1] = self._told.newest(), self.share == self._even
        self._vote = self._dist.all_reduce(self._ballot, self._dist.ReduceOp.MIN, group=self._votes, async_op=True)

    def _take_vote(self) -> None:
        self._vote.wait()
        self._vote, self._are_all_even = None, bool(self._ballot[1])
        agreed = int(self._ballot[0])
        if agreed != self._version:
            self._version = agreed
            self._told.use(agreed)


def _without_exchange(model: Any) -> contextlib.AbstractContextManager[Any]:
    """Gradients are kept on this rank meanwhile."""
    if hasattr(model, "no_sync"):
        manager: contextlib.AbstractContextManager[Any] = model.no_sync()
        return manager
    return _kept(model)


@contextlib.contextmanager
def _kept(model: Any) -> Iterator[None]:
    """The same for FSDP2, which has switches."""
    switches = model.set_requires_gradient_sync, model.set_reshard_after_backward
    try:
        for switch in switches:
            switch(False)
        yield
    finally:
        for switch in switches:
            switch(True)
