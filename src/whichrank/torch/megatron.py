"""Shares out the microbatches of a program that trains with the schedules of Megatron-Core.

A schedule is given the count of this replica instead of the even one, and Megatron's calculator says that count as long
as the schedule runs. Between iterations it says the even one: a training loop counts consumed samples by it, which are
as many whoever computes them.

A schedule divides each loss by the count that it is given, and replicas are averaged. So with m microbatches instead of
e a loss must count m / e times as much: then each of all M microbatches counts 1 / M. The factor goes into
`config.grad_scale_func`, in front of the program's own. A factor in the loss function would do for the loss, but not
for the auxiliary losses of experts and of multi-token prediction, which Megatron scales by that function alone. With
`calculate_per_token_loss` gradients are divided by the tokens of all replicas, and no factor is needed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from whichrank.errors import UsageError
from whichrank.torch.balancer import Balancer


class MegatronBalancer(Balancer):
    """A `Balancer` for Megatron-Core; make it on all ranks, behind `initialize_model_parallel`.

    The even share is what Megatron's calculator says, and replicas are those of its data-parallel groups.

    Args:
        multiple: Of which each share must be one; 0: of the pipeline stages in interleaved schedules, else any.
        ahead: Iterations by which data are read ahead: shares are agreed on so many iterations before they are used.

    Raises:
        UsageError: Shares of such a job cannot be changed.

    Example:
        The two lines that a training loop needs, and the samples of each microbatch::

            balancer = MegatronBalancer()
            forward_backward = balancer.schedule(get_forward_backward_func())
            sampler = balancer.sampler(len(dataset), get_micro_batch_size(), shuffle=False)
            batches = iter(DataLoader(dataset, batch_sampler=sampler))
            for _ in range(steps):
                forward_backward(
                    forward_step_func=forward_step, data_iterator=batches, model=model,
                    num_microbatches=get_num_microbatches(), seq_length=4096, micro_batch_size=get_micro_batch_size(),
                )
                optimizer.step()
    """

    def __init__(self, *, multiple: int = 0, ahead: int = 0) -> None:
        calculators, self._state = _megatron("num_microbatches_calculator"), _megatron("parallel_state")
        calculator = calculators._GLOBAL_NUM_MICROBATCHES_CALCULATOR
        if calculator is None:
            what = "Megatron's calculator does not know yet how many microbatches a replica computes"
            raise UsageError(what, mend="call init_num_microbatches_calculator before")
        if calculator.get_current_global_batch_size() < getattr(calculator, "global_batch_size", 0):
            what = "the batch size is still ramped up, and shares are made for one size"
            raise UsageError(what, mend="make the MegatronBalancer when the ramp-up is over")
        stages, chunks = self._state.get_pipeline_model_parallel_world_size(), _chunks(self._state)
        self._multiple = multiple or (stages if chunks > 1 else 1)
        if chunks > 1 and self._multiple % stages:
            what = f"interleaved schedules need multiples of {stages} microbatches, the number of pipeline stages"
            raise UsageError(what, mend=f"MegatronBalancer(multiple={stages})")
        if calculator.get() % self._multiple:
            what = f"an even share of {calculator.get()} microbatches is no multiple of {self._multiple}"
            raise UsageError(what, mend="take another global batch size")
        self._refuse_experts()
        group = self._state.get_data_parallel_group()
        super().__init__(calculator.get(), group, multiple=self._multiple, ahead=ahead)
        self._calculators = calculators
        self._of_replicas = [group, self._state.get_data_parallel_group(with_context_parallel=True)]

    def schedule(self, forward_backward: Callable[..., Any]) -> Callable[..., Any]:
        """The same schedule, with the microbatches that this replica computes.

        Args:
            forward_backward: What `get_forward_backward_func` returns. The new one takes the same arguments; with
                `forward_only` it does the same.

        Returns:
            A function that begins an iteration with each call, and raises a UsageError where shares cannot be changed.
        """

        @functools.wraps(forward_backward)
        def balanced(**arguments: Any) -> Any:
            if arguments.get("forward_only"):
                return forward_backward(**arguments)
            config = self._config_of(arguments["model"], arguments["num_microbatches"])
            if not self._begun:
                arguments["forward_step_func"] = self._without_exchange_in_losses(arguments["forward_step_func"])
            self._begin()
            arguments["num_microbatches"] = self.share[1]
            with self._counted(config):
                return forward_backward(**arguments)

        return balanced

    @contextlib.contextmanager
    def _counted(self, config: Any) -> Iterator[None]:
        """Meanwhile the calculator says the count of this replica, and each loss counts as with an even share."""
        count, calculator = self.share[1], self._calculators._GLOBAL_NUM_MICROBATCHES_CALCULATOR
        usual, scale = calculator.num_micro_batches, config.grad_scale_func
        try:
            calculator.num_micro_batches = count
            if count != self.microbatches and not getattr(config, "calculate_per_token_loss", False):
                config.grad_scale_func = _scaled(count / self.microbatches, scale)
            yield
        finally:
            calculator.num_micro_batches, config.grad_scale_func = usual, scale

    def _config_of(self, model: Any, microbatches: int) -> Any:
        """Of a model with which shares can be changed.

        Raises:
            UsageError: They cannot.
        """
        chunks = model if isinstance(model, list) else [model]
        config = _megatron("utils").get_model_config(chunks[0])
        if microbatches != self.microbatches:
            what = f"the schedule is called with {microbatches} microbatches, and an even share is {self.microbatches}"
            raise UsageError(what, mend="num_microbatches=get_num_microbatches()")
        if any("FullyShardedDataParallel" in name for chunk in chunks for name in _wrappers(chunk)):
            what = "Megatron's FSDP gathers parameters for each microbatch, so all replicas need as many"
            raise UsageError(what, mend="use DistributedDataParallel with the distributed optimizer")
        if getattr(config, "cuda_graph_impl", "none") != "none" or getattr(config, "enable_cuda_graph", False):
            what = "CUDA graphs are recorded for one number of microbatches"
            raise UsageError(what, mend='set cuda_graph_impl="none"')
        if getattr(config, "hybrid_context_parallel", False):
            what = "hybrid context parallelism exchanges parts of microbatches between replicas"
            raise UsageError(what, mend="set hybrid_context_parallel=False")
        grouped = getattr(config, "microbatch_group_size_per_vp_stage", None) or 1
        if len(chunks) > 1 and self._multiple % grouped:
            what = f"this interleaved schedule takes microbatches in groups of {grouped}"
            raise UsageError(what, mend=f"MegatronBalancer(multiple={grouped})")
        return config

    def _refuse_experts(self) -> None:
        """Experts may only be spread over ranks of one replica: the others compute another number of microbatches."""
        experts = self._state.get_expert_model_parallel_group(check_initialized=False)
        if experts is None:
            return
        import torch.distributed as dist

        own = dist.get_process_group_ranks(self._state.get_tensor_and_context_parallel_group())
        if not set(dist.get_process_group_ranks(experts)) <= set(own):
            what = "experts are spread over replicas, which exchange tokens in each microbatch, so all need as many"
            raise UsageError(what, mend="spread experts over the ranks of one replica")

    def _without_exchange_in_losses(self, forward_step: Callable[..., Any]) -> Callable[..., Any]:
        """The same, refused where a loss function exchanges something with other replicas.

        Replicas with other counts would wait for each other forever, so it is looked for while all share evenly.
        """

        def checked(loss_of: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            before = self._exchanges()
            found = loss_of(*arguments, **named)
            if self._exchanges() != before:
                what = "the loss function exchanges something with other replicas, which compute other microbatches"
                raise UsageError(what, mend="return the loss as it is, and reduce it behind the schedule")
            return found

        def step(*arguments: Any, **named: Any) -> Any:
            output, loss_of = forward_step(*arguments, **named)
            return output, loss_of and functools.partial(checked, loss_of)

        return step

    def _exchanges(self) -> list[int]:
        """Collectives so far on each group that spans replicas, of a backend that counts them."""
        numbers = []
        for group in (*self._of_replicas, self._dist.group.WORLD):
            with contextlib.suppress(RuntimeError):
                numbers.append(int(group._get_sequence_number_for_group()))
        return numbers


def _megatron(module: str) -> Any:
    try:
        return importlib.import_module(f"megatron.core.{module}")
    except ImportError as error:
        raise UsageError(f"Megatron-Core cannot be imported: {error}", mend="pip install megatron-core") from error


def _chunks(state: Any) -> int:
    """Parts of the model on each rank."""
    return int(state.get_virtual_pipeline_model_parallel_world_size() or 1)


def _wrappers(model: Any) -> Iterator[str]:
    """Names of the classes that the model is wrapped by, and its own."""
    while model is not None:
        yield type(model).__name__
        model = getattr(model, "module", None)


def _scaled(factor: float, scale: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """The program's own scale of losses, of a loss that counts so many times as much."""
    return lambda loss: scale(loss * factor) if scale else loss * factor
