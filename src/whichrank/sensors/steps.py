"""Tells the ring when the optimizer makes a step: where an iteration ends, by the program's own word.

torch calls hooks around each `Optimizer.step`, of every optimizer that is derived from its own. Where one optimizer
wraps another (ZeRO) the outer step counts. While a step is being compiled the hooks do nothing, so nothing of them gets
into a graph and no graph breaks; such steps are not seen.
"""

from __future__ import annotations

import os
from typing import Any, Final

from whichrank.native import load_core, on_ring

SWITCH: Final = "WHICHRANK_STEPS"
"""Set to 0, no optimizer step is noted: iterations are found by operations, as where optimizers are not torch's."""


def watch() -> None:
    """Note every optimizer step of this process from now on. Where torch has no such hook, none is noted.

    Raises:
        NativeLibraryError: The core library is not there.
    """
    if os.environ.get(SWITCH) == "0":
        return
    try:
        from torch.compiler import is_compiling
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    except ImportError:
        return
    step = on_ring(load_core(), "wr_step")
    outer: int | None = None  # id of the optimizer whose step has begun first; forgotten if that step raised

    def begins(optimizer: Any, *_: Any) -> None:
        nonlocal outer
        if not is_compiling() and outer is None:
            outer = id(optimizer)

    def stepped(optimizer: Any, *_: Any) -> None:
        nonlocal outer
        if is_compiling() or outer not in (None, id(optimizer)):
            return
        outer = None
        step()

    register_optimizer_step_pre_hook(begins)
    register_optimizer_step_post_hook(stepped)
