"""For `losses_job`: trains with the schedules, the calculator and the gradient buffers of Megatron-Core.

Megatron-Core is made for devices. On the CPU two things stand in for one, and all else is Megatron's own: tensors that
are asked for on "cuda" are made on the CPU, and the current device is the CPU. The layers are torch's, in a
`MegatronModule`: what counts here is the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

STAGES: Final = {"megatron": 1, "megatron-1f1b": 2, "megatron-interleaved": 2}
"""Pipeline stages of each sort of job."""
CHUNKS: Final = 2
"""Of the model on each rank, where stages are interleaved."""


class _OnCpu(TorchFunctionMode):
    """Tensors that are asked for on "cuda" are made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if named.get("device") == "cuda":
            named["device"] = "cpu"
        return func(*args, **named)


class MegatronJob:
    """The model, the schedule and the balancer of a rank.

    Args:
        mode: A sort of job, of `STAGES`.
        layers: Of the whole model; each keeps the width.
        width: Of a layer.
        microbatches: Of an even share.
        samples: In a microbatch.
        is_per_token: Gradients are divided by the tokens of all replicas (`calculate_per_token_loss`).
    """

    def __init__(
        self, mode: str, layers: list[torch.nn.Module], width: int, microbatches: int, samples: int, is_per_token: bool
    ) -> None:
        torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
        _OnCpu().__enter__()  # type: ignore[no-untyped-call]
        from megatron.core import num_microbatches_calculator, parallel_state
        from megatron.core.distributed import (
            DistributedDataParallel,
            DistributedDataParallelConfig,
            finalize_model_grads,
        )
        from megatron.core.pipeline_parallel import get_forward_backward_func
        from megatron.core.transformer import TransformerConfig
        from megatron.core.transformer.module import MegatronModule

        from whichrank.torch import MegatronBalancer

        class Chunk(MegatronModule):  # type: ignore[misc,unused-ignore]
            """Some layers, without embeddings; of a stage behind the first one what came from there goes in."""

            pre_process = share_embeddings_and_output_weights = False

            def __init__(self, config: Any, layers: list[torch.nn.Module]) -> None:
                super().__init__(config)
                self.layers = torch.nn.Sequential(*layers)
                self.received: Any = None

            def set_input_tensor(self, received: Any) -> None:
                self.received = received[0]

            def forward(self, given: Any) -> Any:
                return self.layers(given if self.received is None else self.received)

        chunks = CHUNKS if mode == "megatron-interleaved" else 1
        parallel_state.initialize_model_parallel(
            pipeline_model_parallel_size=STAGES[mode],
            virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
            order="tp-cp-ep-pp-dp",
        )
        replicas = parallel_state.get_data_parallel_world_size()
        num_microbatches_calculator.init_num_microbatches_calculator(
            dist.get_rank(), None, microbatches * samples * replicas, samples, replicas
        )
        self.calculator, self._samples, self._width, self._is_per_token = (
            num_microbatches_calculator, samples, width, is_per_token
        )  # fmt: skip
        dtype = torch.get_default_dtype()
        config = TransformerConfig(
            num_layers=len(layers), hidden_size=width, num_attention_heads=1, params_dtype=dtype, pipeline_dtype=dtype,
            pipeline_model_parallel_size=STAGES[mode], calculate_per_token_loss=is_per_token,
            virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
            deallocate_pipeline_outputs=True, batch_p2p_comm=False, use_cpu_initialization=True,
        )  # fmt: skip
        parts, place = STAGES[mode] * chunks, parallel_state.get_pipeline_model_parallel_rank()
        each = len(layers) // parts
        buffers = DistributedDataParallelConfig(overlap_grad_reduce=True)
        self.models = []
        for chunk in range(chunks):
            first = (chunk * STAGES[mode] + place) * each
            module = Chunk(config, layers[first : first + each])
            module.model_type, module.vp_stage = None, chunk if chunks > 1 else None
            self.models.append(DistributedDataParallel(config, buffers, module))
        no_syncs = [model.no_sync for model in self.models]
        config.no_sync_func = no_syncs if chunks > 1 else no_syncs[0]
        config.finalize_model_grads_func = finalize_model_grads
        self.balancer = MegatronBalancer()
        self._forward_backward = self.balancer.schedule(get_forward_backward_func())

    def parameters(self) -> list[torch.nn.Parameter]:
        """Of this rank."""
        return [parameter for model in self.models for parameter in model.parameters()]

    def iteration(self, batches: Callable[[], Iterator[Any]]) -> Callable[[], float]:
        """Computes gradients of one iteration, and returns the sum of losses of this replica on its last stage.

        Args:
            batches: Makes an iterator over the samples of microbatches: each part of the model needs its own.
        """
        data = [batches() for _ in self.models]

        def loss_of(wanted: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, ...]:
            squares = (out[0] - wanted).square()
            if self._is_per_token:
                return squares.sum(), torch.tensor(wanted.numel(), dtype=torch.int), squares.detach().mean()
            return squares.mean(), squares.detach().mean()

        def forward_step(data: Iterator[Any], model: Any) -> tuple[Any, Any]:
            given, wanted = next(data)
            return model(given[None]), partial(loss_of, wanted)

        def iteration() -> float:
            for model in self.models:
                model.zero_grad_buffer()
            losses = self._forward_backward(
                forward_step_func=forward_step,
                data_iterator=data if len(data) > 1 else data[0],
                model=self.models if len(data) > 1 else self.models[0],
                num_microbatches=self.calculator.get_num_microbatches(),
                seq_length=1,
                micro_batch_size=self._samples,
            )
            for parameter in self.parameters():
                parameter.grad = parameter.main_grad  # type: ignore[attr-defined]
            return sum(map(float, losses))

        return iteration
