"""What the arguments of a `c10d::*` operator mean, for the Python sensor: the same reading as in `c10d_arguments.h`.

Positions come from the schema, so that a new argument does not shift them. A call is first reduced to a small key
(sizes, dtype, root, tag, ...); the filled `wr_op` of a key, its signature included, is kept as bytes, so a training
loop that repeats its operations pays for a dictionary look-up and one copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from whichrank.model.codes import SPLITS, Flag
from whichrank.model.kinds import BARRIERS, Kind, is_message
from whichrank.sensors.abi import Op

OPERATORS: Final = {
    "allreduce_": Kind.ALL_REDUCE,
    "broadcast_": Kind.BROADCAST,
    "reduce_": Kind.REDUCE,
    "allgather_": Kind.ALL_GATHER,
    "_allgather_base_": Kind.ALL_GATHER,
    "reduce_scatter_": Kind.REDUCE_SCATTER,
    "_reduce_scatter_base_": Kind.REDUCE_SCATTER,
    "alltoall_base_": Kind.ALL_TO_ALL,
    "alltoall_": Kind.ALL_TO_ALL,
    "gather_": Kind.GATHER,
    "scatter_": Kind.SCATTER,
    "barrier": Kind.BARRIER,
    "monitored_barrier_": Kind.MONITORED_BARRIER,
    "allreduce_coalesced_": Kind.ALL_REDUCE_COALESCED,
    "allgather_coalesced_": Kind.ALL_GATHER_COALESCED,
    "allgather_into_tensor_coalesced_": Kind.ALL_GATHER_COALESCED,
    "reduce_scatter_tensor_coalesced_": Kind.REDUCE_SCATTER_COALESCED,
    "send": Kind.SEND,
    "recv_": Kind.RECV,
    "recv_any_source_": Kind.RECV_ANY,
}

# c10::ScalarType, in its order; it only ever grows at the end.
_DTYPES = [
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
    *("complex32", "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"),
    *("quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"),
    *("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64"),
]
DTYPE_NUMBERS: Final = {getattr(torch, name): number for number, name in enumerate(_DTYPES) if hasattr(torch, name)}

NONE: Final = 255
LONGEST_TIMEOUT_MS: Final = 0xFFFFFFFF
"""As long as a row can say: 49 days."""
_WORD = (1 << 64) - 1
_MOST_TEMPLATES = 4096


@dataclass(frozen=True, slots=True)
class Group:
    """What the sensor keeps of a process group.

    Attributes:
        slot: Its row in the table of communicators.
        timeout_ms: The timeout that holds now.
        first_timeout_ms: The one that it was made with: Gloo's send and receive keep it whatever is set later.
        gloo_devices: Types of device that Gloo serves.
        other_devices: Those that another backend serves.
    """

    slot: int
    timeout_ms: int
    first_timeout_ms: int
    gloo_devices: frozenset[str]
    other_devices: frozenset[str]

    def is_gloo(self, tensor: torch.Tensor | None) -> bool:
        """Whether an operation on `tensor` goes through Gloo."""
        if not self.other_devices or not self.gloo_devices:
            return bool(self.gloo_devices)
        return (tensor.device.type if tensor is not None else "cpu") in self.gloo_devices


@dataclass(frozen=True, slots=True)
class Reading:
    """One call: the op to begin, the tensors that it fills, and the splits that the op points to until it has begun."""

    op: Op
    gloo: bool
    filled: list[torch.Tensor]
    keep: tuple[Any, ...]


class Operator:
    """One of the operators: where its arguments stand, and how to read them."""

    def __init__(self, name: str, overload: Any) -> None:
        self.name = name
        self.kind = OPERATORS[name]
        self.is_message = is_message(self.kind)
        self.call = overload
        self._templates: dict[tuple[Any, ...], tuple[bytes, tuple[Any, ...]]] = {}
        arguments = overload._schema.arguments
        self._defaults = tuple(argument.default_value for argument in arguments)
        names = [argument.name for argument in arguments]

        def place(*wanted: str) -> int:
            return next((at for at, argument in enumerate(names) if argument in wanted), -1)

        def starting(*wanted: str) -> int:
            splits = ("input_split_sizes", "output_split_sizes")
            return next((at for at, text in enumerate(names) if text.startswith(wanted) and text not in splits), -1)

        self.group = place("process_group")
        self._input = max(starting("input"), place("tensors", "tensor"))
        self._output = starting("output")
        self._reduce_op = place("reduce_op")
        self._peer = place("root_rank", "dst", "src")
        self._tag = place("tag")
        self._async = place("async_op")
        self._timeout = place("timeout")
        self._split_in, self._split_out = place("input_split_sizes"), place("output_split_sizes")
        of_lists = self._output if self.kind in (Kind.ALL_GATHER, Kind.GATHER) else self._input
        self._lists = of_lists >= 0 and str(arguments[of_lists].type) == "List[List[Tensor]]"

    def read(self, arguments: Sequence[Any], group: Group) -> Reading:
        """The op of this call, ready to begin; trailing arguments that have their default may be missing."""
        given = len(arguments)

        def argument(at: int, otherwise: Any) -> Any:
            return otherwise if at < 0 else arguments[at] if at < given else self._defaults[at]

        inputs, outputs = flat(argument(self._input, None)), flat(argument(self._output, None))
        first = inputs[0] if inputs else outputs[0] if outputs else None
        reduce_op = argument(self._reduce_op, None)
        gloo = group.is_gloo(first)
        key = (
            group.slot,
            group.first_timeout_ms if gloo and self.is_message else group.timeout_ms,
            gloo,
            first.dtype if first is not None else None,
            tuple([t.numel() for t in inputs]),
            tuple([t.numel() for t in outputs]),
            NONE if reduce_op is None else reduce_op.op(),
            argument(self._peer, -1),
            argument(self._tag, 0),
            argument(self._async, False),
            argument(self._timeout, -1),
            self._splits(argument(self._split_in, ()), inputs),
            self._splits(argument(self._split_out, ()), outputs),
        )
        found = self._templates.get(key)
        if found is None:
            found = self._fill(*key)
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            self._templates[key] = found
        template, keep = found
        return Reading(Op.from_buffer_copy(template), gloo, outputs or inputs, keep)

    def _splits(self, given: Sequence[int], tensors: list[torch.Tensor]) -> tuple[int, ...]:
        """What an all-to-all has for each member, in elements: of rows of its tensor, or of a tensor for each."""
        if self.kind != Kind.ALL_TO_ALL:
            return ()
        if self._split_in < 0:
            return tuple([t.numel() for t in tensors])
        whole = tensors[0]
        row = whole.numel() // whole.shape[0] if whole.dim() and whole.shape[0] else 1
        return tuple([rows * row for rows in given])

    def _fill(
        self,
        slot: int,
        default_timeout_ms: int,
        gloo: bool,
        dtype: torch.dtype | None,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        reduce_op: int,
        peer: int,
        tag: int,
        asynchronous: bool,
        timeout_ms: int,
        split_in: tuple[int, ...],
        split_out: tuple[int, ...],
    ) -> tuple[bytes, tuple[Any, ...]]:
        flags = Flag.FALLBACK
        splits = min(len(split_in), len(split_out))
        flags |= Flag.ASYNC if asynchronous else Flag(0)
        flags |= Flag.UNEVEN if split_in or split_out else Flag(0)
        flags |= Flag.SPLITS_CUT if splits > SPLITS else Flag(0)
        flags |= Flag(0) if gloo else Flag.END_INFERRED
        op = Op(
            comm_slot=slot,
            kind=self.kind,
            dtype=NONE if dtype is None else DTYPE_NUMBERS.get(dtype, NONE),
            reduce_op=reduce_op,
            flags=flags,
            peer=peer,
            tag=tag & 0xFFFFFFFF,
            timeout_ms=min(timeout_ms, LONGEST_TIMEOUT_MS) if timeout_ms > 0 else default_timeout_ms,
            count=sum(outputs if counts_output(self.kind, self._lists) else inputs),
            out_count=sum(outputs),
            splits=splits,
        )
        keep = tuple((ctypes.c_int64 * len(part))(*part) for part in (split_in, split_out) if splits)
        if keep:
            op.split_in, op.split_out = (ctypes.addressof(part) for part in keep)
        op.signature = signature(op, flags, inputs)
        return bytes(op), keep


def flat(value: Any) -> list[torch.Tensor]:
    """All tensors of a tensor, a list or a list of lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in flat(part)] if value else []


def counts_output(kind: Kind, lists: bool) -> bool:
    """Is it the output that all members have alike? A scatter's input is the root's alone, a list says all sizes."""
    return kind == Kind.SCATTER or (kind == Kind.ALL_GATHER and lists)


def signature(op: Op, flags: Flag, inputs: Sequence[int]) -> int:
    """`signature_of` of the C++ sensor: what must agree among all members; 0 where one number cannot say it."""
    kind, head = op.kind, mix(op.kind, op.dtype)
    if kind in BARRIERS:
        return mix(kind, 1)
    if is_message(kind):
        return mix(op.dtype + 1, op.count)
    if kind == Kind.ALL_TO_ALL:
        return 0 if flags & Flag.UNEVEN else mix(head, op.count)
    if kind in (Kind.GATHER, Kind.SCATTER):
        return mix(mix(head, op.count), op.peer & 0xFFFFFFFF)
    if kind == Kind.ALL_GATHER:
        return mix(head, op.count)
    if kind == Kind.REDUCE_SCATTER:
        return mix(mix(head, op.reduce_op), op.count)
    size = hash_of(inputs) if len(inputs) > 1 else op.count
    return mix(mix(mix(head, size), op.reduce_op), op.peer & 0xFFFFFFFF)


def mix(h: int, v: int) -> int:
    """`mix` of the C++ sensor, in 64 bits."""
    return ((h ^ v) * 0x9E3779B97F4A7C15 + (h >> 29)) & _WORD


def hash_of(sizes: Sequence[int]) -> int:
    """`Sizes::hash` of the C++ sensor."""
    h = 0
    for size in sizes:
        h = ((h ^ size) * 0x100000001B3 + 1) & _WORD
    return h


@cache
def operators() -> tuple[Operator, ...]:
    """The operators that the installed torch has."""
    return tuple(
        Operator(name, getattr(torch.ops.c10d, name).default) for name in OPERATORS if hasattr(torch.ops.c10d, name)
    )
