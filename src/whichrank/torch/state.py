"""The state of a process as bytes: what a `state_dict` holds, taken apart for others and put together again.

Tensors go as they lie in memory, with a checksum each. What stands around them (names, numbers, sizes, types) goes in
front, and is read by torch's reader that makes plain values only.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from whichrank.errors import UsageError


class State:
    """A state on the host.

    Args:
        outline: The same values, with tensors that hold nothing in place of its tensors.
        tensors: These, on the CPU, in order.

    Attributes:
        outline: The same.
        tensors: The same.
    """

    def __init__(self, outline: Any, tensors: list[Any]) -> None:
        self.outline, self.tensors = outline, tensors

    @classmethod
    def of(cls, state_dict: Any) -> State:
        """What a `state_dict` returned.

        Raises:
            UsageError: It holds tensors that are spread over several processes.
        """
        tensors: list[Any] = []

        def take(tensor: Any) -> Any:
            if hasattr(tensor, "to_local"):
                what = "a state with DTensors cannot be handed over"
                raise UsageError(what, mend="let state_dict() return their local parts: tensor.to_local()")
            tensors.append(tensor.detach().to("cpu").contiguous())
            return tensor.detach().to("meta")

        return cls(_mapped(state_dict, take), tensors)

    @classmethod
    def awaited(cls, head: bytes) -> State:
        """Room for a state that comes from elsewhere.

        Args:
            head: What its `head` was.
        """
        import torch

        outline = cls.outline_of(head)
        tensors: list[Any] = []

        def make(tensor: Any) -> Any:
            tensors.append(torch.empty(tensor.shape, dtype=tensor.dtype))
            return tensor

        _mapped(outline, make)
        return cls(outline, tensors)

    @staticmethod
    def outline_of(head: bytes) -> Any:
        """What stands around the tensors.

        Args:
            head: What `head` was of a state.

        Raises:
            Exception: It holds more than plain values.
        """
        import torch

        return torch.load(io.BytesIO(head), weights_only=True)

    def head(self) -> bytes:
        """All but the tensors."""
        import torch

        buffer = io.BytesIO()
        torch.save(self.outline, buffer)
        return buffer.getvalue()

    def state_dict(self) -> Any:
        """For `load_state_dict`."""
        tensors = iter(self.tensors)
        return _mapped(self.outline, lambda _: next(tensors))

    def parts(self) -> Iterator[Any]:
        """The bytes of each tensor that has any, as a tensor of bytes that shares its memory."""
        import torch

        for tensor in self.tensors:
            if tensor.numel():
                yield tensor.reshape(-1).view(torch.uint8)

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(int(tensor.numel()) * int(tensor.element_size()) for tensor in self.tensors)

    def checksum(self) -> int:
        """Of the bytes of all tensors."""
        found = 0
        for part in self.parts():
            found = zlib.crc32(part.numpy(), found)
        return found


def tensors_in(value: Any) -> Iterator[Any]:
    """All tensors in dicts, lists and tuples."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same dicts, lists and tuples with all tensors changed, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [_mapped(one, change) for one in value]
    if isinstance(value, tuple):
        return tuple(_mapped(one, change) for one in value)
    return value
