"""What the frames of a thread say: it loads data, writes a checkpoint, waits for other ranks or other processes.

A frame is `function (file:line)`, innermost first, as agents send it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whichrank.model.telemetry import Stack

_DATA = re.compile(r"dataloader|data_loader|_next_data|_get_data|_try_get_data|dataset", re.IGNORECASE)
_CHECKPOINT = re.compile(
    r"(?<![a-z])(save|write|dump)\w* \(|(?<![a-z])(store|upload|persist)_?\w*(checkpoint|ckpt|state|snapshot)"
    r"|(checkpoint|ckpt|snapshot)\w*_(save|write)",
    re.IGNORECASE,
)
"""Frames that write training state. Not every checkpoint: activations are checkpointed in each backward pass."""
_RENDEZVOUS = re.compile(
    r"^(?:init_process_group|new_group|_new_group_with_tag|new_subgroups\w*|split_group|_new_process_group_helper"
    r"|_store_based_barrier) \(.*\btorch/distributed/distributed_c10d\.py:\d+\)$"
    r"|\(.*\btorch/distributed/(?:rendezvous|elastic/utils/store)\.py:\d+\)$"
)
"""Frames of torch's own code that waits for other ranks. Under them lie store waits in C++, which have no frame."""
_REMOTE_CALL = re.compile(r"^\w+ \(.*torch/(?:distributed/rpc/(?:api|rref_proxy)|futures/__init__)\.py:\d+\)$")
"""Innermost frame of a thread that waits for the answer of a remote call, where no sensor has marked it."""
_OTHER_PROCESS = re.compile(
    r"^\w+ \(.*/multiprocessing/(?:connection|queues|managers|synchronize|popen_\w+)\.py:\d+\)$"
)
"""Innermost frames of a thread that waits for another process of the program's own."""
_SENSOR = re.compile(r"\((?:.*/)?whichrank/sensors/\w+\.py:\d+\)$")
"""Frames of our own that stand between the program and torch."""
FRAMES_READ = 12
"""The innermost frames of a thread, which say what it does now."""
INNERMOST = 3
"""The same, where the very call matters."""


def loads_data(stack: Stack | None) -> bool:
    """Is the thread in a data loader?"""
    return stack is not None and bool(_DATA.search(_now(stack)))


def writes_checkpoint(stack: Stack | None) -> bool:
    """Is the thread in a function that writes training state?"""
    return stack is not None and bool(_CHECKPOINT.search(_now(stack)))


def waits_in_rendezvous(frames: Sequence[str]) -> bool:
    """Is one of these frames torch's own code that waits for other ranks?"""
    return any(_RENDEZVOUS.search(frame) for frame in frames)


def waits_for_another_process(frames: Sequence[str]) -> bool:
    """Is a call among the innermost frames that waits for another process, of this program or of another rank?"""
    innermost = [frame for frame in frames if not _SENSOR.search(frame)][:INNERMOST]
    return any(_REMOTE_CALL.search(frame) or _OTHER_PROCESS.search(frame) for frame in innermost)


def _now(stack: Stack) -> str:
    return " ".join(stack.frames[:FRAMES_READ])
