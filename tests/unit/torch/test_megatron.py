"""Shares of a job that trains with Megatron-Core: counts, factors, and what is refused. One process is a rank."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from whichrank.errors import UsageError
from whichrank.torch import MegatronBalancer
from whichrank.torch.own_shares import OwnShares

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that there is no Transformer Engine, and what torch deprecates
    pytest.importorskip("megatron.core", reason="megatron-core has no wheel for this Python")
    from megatron.core import num_microbatches_calculator, parallel_state
    from megatron.core.model_parallel_config import ModelParallelConfig

EVEN = 4


class Told(OwnShares):
    """A process that is told one share."""

    def __init__(self, first: int, count: int) -> None:
        self.share = first, count

    def newest(self) -> int:
        return 1

    def of(self, version: int) -> tuple[int, int]:
        return self.share

    def use(self, version: int) -> None: ...


def ready(microbatches: int = EVEN, **sizes: Any) -> None:
    """Megatron is initialized, as a program has done it before it makes the balancer."""
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False, **sizes)
    replicas = parallel_state.get_data_parallel_world_size()
    num_microbatches_calculator.init_num_microbatches_calculator(0, None, microbatches * replicas, 1, replicas)


@pytest.fixture(autouse=True)
def cleaned() -> Iterator[None]:
    yield
    num_microbatches_calculator.destroy_num_microbatches_calculator()
    parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def alone() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@pytest.fixture
def one_of_four() -> None:
    """A rank whose groups are made, and whose peers are not there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)


def model_of(**settings: Any) -> Any:
    """What the schedules take a configuration from."""
    config = ModelParallelConfig()
    for name, value in settings.items():
        setattr(config, name, value)
    return SimpleNamespace(config=config)


class Schedule:
    """A schedule of Megatron as the balancer sees it; keeps with which counts and scales it was called."""

    def __init__(self) -> None:
        self.counts = list[tuple[int, int]]()
        self.scales = list[float]()

    def __call__(self, *, model: Any, num_microbatches: int, forward_step_func: Callable[..., Any], **_: Any) -> str:
        self.counts.append((num_microbatches, num_microbatches_calculator.get_num_microbatches()))
        scale = (model[0] if isinstance(model, list) else model).config.grad_scale_func
        self.scales.append(float(scale(torch.ones(1))) if scale else 1.0)
        output, loss_of = forward_step_func(None, model)
        if loss_of:
            loss_of(output)
        return "losses"


def arguments(model: Any, loss_of: Callable[..., Any] | None = None, **more: Any) -> dict[str, Any]:
    step = lambda data, model: (torch.ones(1), loss_of)  # noqa: E731
    return {"model": model, "forward_step_func": step, "num_microbatches": EVEN, **more}


def test_schedule_gets_the_count_of_this_replica_and_the_loop_the_even_one(alone: None) -> None:
    ready()
    balancer, schedule = MegatronBalancer(), Schedule()
    balancer._told = Told(1, 3)
    step, model = balancer.schedule(schedule), model_of()
    for _ in range(2):
        assert step(**arguments(model)) == "losses"
        assert num_microbatches_calculator.get_num_microbatches() == EVEN
    assert schedule.counts == [(4, 4), (3, 3)]
    assert balancer.share == (1, 3)
    # AND a microbatch counts as much as with an even share
    assert schedule.scales == [1.0, 0.75]
    assert model.config.grad_scale_func is None


def test_scale_of_the_program_counts_too(alone: None) -> None:
    ready()
    balancer, schedule = MegatronBalancer(), Schedule()
    balancer._told = Told(0, 2)
    of_the_program = lambda loss: loss * 1024  # noqa: E731
    model = model_of(grad_scale_func=of_the_program)
    for _ in range(2):
        balancer.schedule(schedule)(**arguments(model))
    assert schedule.scales == [1024.0, 512.0]
    assert model.config.grad_scale_func is of_the_program


def test_no_factor_where_gradients_are_divided_by_all_tokens(alone: None) -> None:
    ready()
    balancer, schedule = MegatronBalancer(), Schedule()
    balancer._told = Told(0, 2)
    for _ in range(2):
        balancer.schedule(schedule)(**arguments(model_of(calculate_per_token_loss=True)))
    assert schedule.counts == [(4, 4), (2, 2)]
    assert schedule.scales == [1.0, 1.0]


def test_evaluation_is_as_it_was(alone: None) -> None:
    ready()
    balancer, schedule = MegatronBalancer(), Schedule()
    balancer._told = Told(0, 2)
    step = balancer.schedule(schedule)
    step(**arguments(model_of()))
    step(**arguments(model_of(), forward_only=True) | {"num_microbatches": 7})
    assert schedule.counts == [(4, 4), (7, 4)]


def test_counts_are_even_again_after_a_schedule_that_raises(alone: None) -> None:
    ready()
    balancer, model = MegatronBalancer(), model_of()
    balancer._told = Told(0, 2)
    balancer.schedule(Schedule())(**arguments(model))

    def raises(**_: Any) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        balancer.schedule(raises)(**arguments(model))
    assert num_microbatches_calculator.get_num_microbatches() == EVEN
    assert model.config.grad_scale_func is None


def test_loss_function_that_exchanges_with_other_replicas_is_refused_at_once(alone: None) -> None:
    ready()

    def averaged(out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shown = out.clone()
        dist.all_reduce(shown, group=parallel_state.get_data_parallel_group())
        return out, shown

    with pytest.raises(UsageError, match="loss function exchanges something with other replicas"):
        MegatronBalancer().schedule(Schedule())(**arguments(model_of(), averaged))
    # AND one that does not is as it was
    MegatronBalancer().schedule(Schedule())(**arguments(model_of(), lambda out: (out, out)))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"cuda_graph_impl": "local"}, "CUDA graphs are recorded for one number"),
        ({"hybrid_context_parallel": True}, "hybrid context parallelism"),
    ],
)
def test_settings_with_which_shares_cannot_be_changed(alone: None, settings: dict[str, Any], why: str) -> None:
    ready()
    with pytest.raises(UsageError, match=why):
        MegatronBalancer().schedule(Schedule())(**arguments(model_of(**settings)))


def test_parameters_that_are_gathered_for_each_microbatch_are_refused(alone: None) -> None:
    ready()
    model = type("FullyShardedDataParallel", (), {"config": ModelParallelConfig()})()
    with pytest.raises(UsageError, match="gathers parameters for each microbatch"):
        MegatronBalancer().schedule(Schedule())(**arguments(model))


def test_other_count_than_an_even_share_is_refused(alone: None) -> None:
    ready()
    with pytest.raises(UsageError, match="called with 8 microbatches, and an even share is 4"):
        MegatronBalancer().schedule(Schedule())(**arguments(model_of()) | {"num_microbatches": 8})


def test_calculator_is_needed_and_its_batch_size_stays(alone: None) -> None:
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    with pytest.raises(UsageError, match="does not know yet"):
        MegatronBalancer()
    num_microbatches_calculator.init_num_microbatches_calculator(0, [2, 2, 100], 8, 1, 1)
    with pytest.raises(UsageError, match="still ramped up"):
        MegatronBalancer()
    num_microbatches_calculator.update_num_microbatches(101)
    assert MegatronBalancer().microbatches == 8


def interleaved(microbatches: int) -> None:
    ready(microbatches, pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=2)


def test_interleaved_schedules_need_multiples_of_their_stages(one_of_four: None) -> None:
    interleaved(3)
    with pytest.raises(UsageError, match="an even share of 3 microbatches is no multiple of 2"):
        MegatronBalancer()
    with pytest.raises(UsageError, match="need multiples of 2 microbatches") as raised:
        MegatronBalancer(multiple=3)
    assert raised.value.mend == "MegatronBalancer(multiple=2)"


def test_interleaved_schedules_may_take_larger_groups(alone: None) -> None:
    ready()
    model = model_of(microbatch_group_size_per_vp_stage=4)
    with pytest.raises(UsageError, match="groups of 4") as raised:
        MegatronBalancer().schedule(Schedule())(**arguments([model, model]))
    assert raised.value.mend == "MegatronBalancer(multiple=4)"
    MegatronBalancer(multiple=4).schedule(Schedule())(**arguments([model, model]))


def test_experts_that_are_spread_over_replicas_are_refused(one_of_four: None) -> None:
    ready(expert_model_parallel_size=2)
    with pytest.raises(UsageError, match="experts are spread over replicas"):
        MegatronBalancer()
