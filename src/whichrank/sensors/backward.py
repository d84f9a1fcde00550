"""Tells the ring what each backward pass is given (how many numbers, how long their sequences are), and when it was.

A rank that has more to compute than its peers is not slow, and in plain data parallelism nothing that ranks exchange
tells it apart. So the first tensor with rows, sequences and features is looked up in the graph that goes backward, from
the loss on, and its shape is written down. Which one that is follows from the graph and not from sizes, so it is the
same one on all ranks. Nothing is computed, and no saved tensor is unpacked.

When it began and ended says which part of an iteration a rank was slow in. That of a device is when the host was done
with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import time
from typing import Any, Final

from whichrank.native import load_core, loaded_core, on_ring

FARTHEST: Final = 12
"""Nodes of the graph that are gone through to find it: from the loss to a whole sequence where one element of it is
classified (BERT) it is ten."""
MOST_PATHS: Final = 64
"""Losses of which it is remembered where it was found: a program has few."""
_ENOUGH: Final = 3
"""Dimensions of what is looked for: rows, sequences, features."""

Paths = dict[str, tuple[tuple[int, ...], str]]
"""By the name of a graph's first node: which edges lead to what is looked for, and the name of that node."""

_is_told = False  # the program says it itself


def watch() -> None:
    """Note what every backward pass of this process is given, from now on. Where torch does not tell, nothing is noted.

    Raises:
        NativeLibraryError: The core library is not there.
    """
    try:
        import torch
        from torch._C import _current_graph_task_id
        from torch.compiler import is_compiling
    except ImportError:
        return

    note = on_ring(load_core(), "wr_work", ctypes.c_uint64, ctypes.c_uint32)
    note_pass = on_ring(load_core(), "wr_backward", ctypes.c_uint64, ctypes.c_uint64)
    plain = torch.autograd.backward
    paths = Paths()

    @functools.wraps(plain)
    def backward(*arguments: Any, **named: Any) -> Any:
        # Not within another one, as of a checkpoint; and what is compiled is to have nothing of this in its graph.
        if is_compiling() or _current_graph_task_id() != -1:
            return plain(*arguments, **named)
        if not _is_told:
            with contextlib.suppress(Exception):  # never break training: it is not known then
                shape = _given(arguments[0] if arguments else named["tensors"], paths)
                if shape:
                    note(*_size_of(shape))
        began_ns = time.monotonic_ns()
        note_pass(began_ns, 0)
        try:
            return plain(*arguments, **named)
        finally:
            note_pass(began_ns, time.monotonic_ns())

    torch.autograd.backward = backward


def tokens(count: int, length: int = 0) -> None:
    """Say how much this rank computes in this iteration, in place of what whichrank sees of it.

    To be called once before each backward pass, on all ranks or on none. In a process that whichrank does not watch it
    does nothing.

    Args:
        count: Tokens, rows, pixels: whatever the time of computation goes with.
        length: Of the longest sequence among them; 0: it does not matter.
    """
    global _is_told
    core = loaded_core()
    if core is None:
        return
    _is_told = True
    on_ring(core, "wr_work", ctypes.c_uint64, ctypes.c_uint32)(max(0, int(count)), min(max(0, int(length)), 2**32 - 1))


def _size_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many numbers there are, and the length of the sequences among them, 0 if that is not known."""
    elements = 1
    for side in shape:
        elements *= int(side)
    return elements, int(shape[1]) if len(shape) >= _ENOUGH else 0


def _given(tensors: Any, paths: Paths) -> tuple[int, ...] | None:
    """The shape of the tensor that is looked for, in the graph of one tensor or of the first of several."""
    root = tensors if hasattr(tensors, "grad_fn") else next(iter(tensors))
    if root.dim() >= _ENOUGH:  # of a pipeline's stage
        return tuple(root.shape)
    name = root.grad_fn.name()
    path, end = paths.get(name, ((), ""))
    node = _along(root.grad_fn, path)
    if node is None or node.name() != end:  # another model, or the first time
        path = _path_from(root.grad_fn)
        node = _along(root.grad_fn, path)
        if len(paths) < MOST_PATHS:
            paths[name] = path, node.name()
    return _shape(node)


def _along(node: Any, path: tuple[int, ...]) -> Any:
    """Where these edges lead to, None if they do not."""
    for edge in path:
        edges = node.next_functions
        node = edges[edge][0] if edge < len(edges) else None
        if node is None:
            return None
    return node


def _path_from(node: Any) -> tuple[int, ...]:
    """Which edges lead to the first node with the most dimensions that matter; none: to this one."""
    path: list[int] = []
    best: tuple[int, ...] = ()
    most = len(_shape(node) or ())
    while most < _ENOUGH and len(path) < FARTHEST:
        edge = _edge_of(node)
        if edge is None:
            break
        path.append(edge)
        node = node.next_functions[edge][0]
        dimensions = min(len(_shape(node) or ()), _ENOUGH)
        if dimensions > most:
            best, most = tuple(path), dimensions
    return best


def _edge_of(node: Any) -> int | None:
    """The edge toward the input of the model: not to a parameter, or what is made of one."""
    edges = node.next_functions
    first = 1 if node.name().startswith("Addmm") and len(edges) > 1 else 0  # its bias comes first
    for edge in range(first, len(edges)):
        if edges[edge][0] is not None and not hasattr(edges[edge][0], "variable"):
            return edge
    return None


def _shape(node: Any) -> tuple[int, ...] | None:
    """Of what the operation of a node made; None where that is not told."""
    made = node._input_metadata
    return tuple(made[0].shape) if made else None
