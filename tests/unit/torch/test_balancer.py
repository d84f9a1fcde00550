"""Shares of the work in one process, which whichrank does not watch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
import torch.distributed as dist

from whichrank.errors import UsageError
from whichrank.torch import Balancer
from whichrank.torch.own_shares import OwnShares


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Told(OwnShares):
    """A process that is told another share of four replicas whenever it looks."""

    def __init__(self, shares: list[tuple[int, int]]) -> None:
        self.shares, self.seen, self.used = shares, 0, list[int]()

    def newest(self) -> int:
        self.seen = min(self.seen + 1, len(self.shares))
        return self.seen

    def of(self, version: int) -> tuple[int, int]:
        return self.shares[version - 1]

    def use(self, version: int) -> None:
        self.used.append(version)


def told(balancer: Balancer, *shares: tuple[int, int]) -> Told:
    of_it = Told(list(shares))
    balancer._told = of_it
    return of_it


def test_shares_stay_even_where_nobody_tells_others() -> None:
    balancer = Balancer(4)
    assert [list(balancer.iteration()) for _ in range(3)] == [[0, 1, 2, 3]] * 3


def test_what_is_told_is_used_one_iteration_later() -> None:
    balancer = Balancer(4)
    of_it = told(balancer, (2, 3), (7, 1))
    assert [list(balancer.iteration()) for _ in range(4)] == [[0, 1, 2, 3], [2, 3, 4], [7], [7]]
    assert of_it.used == [1, 2]


def test_data_that_are_read_ahead_are_those_of_the_shares() -> None:
    # GIVEN data that are read one iteration ahead
    balancer = Balancer(4, ahead=1)
    told(balancer, (1, 2), (0, 3))
    batches = balancer.sampler(80, 2, shuffle=False)
    read = [next(batches) for _ in range(4)]
    numbers, computed = list[list[int]](), list[list[int]]()
    for iteration in range(4):
        numbers.append(list(balancer.iteration()))
        read += islice(batches, balancer._share_of(iteration + 1)[1])
        computed += [read.pop(0) for _ in numbers[-1]]
    # THEN shares change one iteration later still
    assert numbers == [[0, 1, 2, 3], [0, 1, 2, 3], [1, 2], [0, 1, 2]]
    # AND the samples are those of the iteration and the numbers
    samples = [[(4 * at + number) * 2, (4 * at + number) * 2 + 1] for at, of in enumerate(numbers) for number in of]
    assert computed == samples


def test_each_epoch_has_all_samples_in_another_order() -> None:
    balancer = Balancer(2)
    batches = balancer.sampler(13, 3, seed=5)
    epochs = []
    for _ in range(2):
        of_epoch = list[int]()
        for _ in range(2):
            of_epoch += [sample for _ in balancer.iteration() for sample in next(batches)]
        epochs.append(of_epoch)
    assert [len(set(epoch)) for epoch in epochs] == [12, 12]
    assert epochs[0] != epochs[1]


def test_job_that_goes_on_from_a_checkpoint_gets_the_samples_that_come_next() -> None:
    def iterations(skip: int, count: int) -> list[list[int]]:
        balancer = Balancer(2)
        batches = balancer.sampler(13, 2, seed=5, skip=skip)
        return [sum((next(batches) for _ in balancer.iteration()), list[int]()) for _ in range(count)]

    assert iterations(4, 6) == iterations(0, 10)[4:]


def test_data_that_are_read_further_ahead_are_refused_with_the_argument_that_mends_it() -> None:
    batches = Balancer(2).sampler(100, 1)
    with pytest.raises(UsageError, match="1 iterations ahead") as raised:
        list(islice(batches, 3))
    assert raised.value.mend == "Balancer(2, ahead=1)"


class Sharded(torch.nn.Module):
    """A module with the switches of FSDP2; each call is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, bool]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("set_"):
            return lambda value: self.calls.append((name, value))
        return super().__getattr__(name)


def test_gradients_are_exchanged_with_the_last_microbatch_only() -> None:
    model, wrapped = Sharded(), torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    exchanged = []
    for number in Balancer(3).iteration(model, wrapped):
        exchanged.append(wrapped.require_backward_grad_sync)
        model.calls.append(("computed", number == 2))
    assert exchanged == [False, False, True]
    names = ["set_requires_gradient_sync", "set_reshard_after_backward"]
    off, on = [(name, False) for name in names], [(name, True) for name in names]
    assert model.calls == [
        ("set_reshard_after_forward", False), *off, ("computed", False), *on, *off, ("computed", False), *on,
        ("computed", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"microbatches": 0}, "0 microbatches"),
        ({"microbatches": 3, "multiple": 2}, "multiples of 2"),
        ({"microbatches": 3, "multiple": 0}, "multiples of 0"),
        ({"microbatches": 3, "ahead": -1}, "-1 iterations ahead"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, int], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Balancer(**arguments)


def test_data_set_that_is_too_small() -> None:
    with pytest.raises(UsageError, match="5 samples are fewer"):
        next(Balancer(2).sampler(5, 3))


def test_model_of_which_shares_cannot_be_changed() -> None:
    model = type("FullyShardedDataParallel", (torch.nn.Module,), {})()
    with pytest.raises(UsageError, match="gathers parameters"):
        next(Balancer(2).iteration(model))
