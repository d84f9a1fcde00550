"""Comparison of stacks (ParaStack; XPUTimer): who hangs outside of communication keeps the others waiting inside.

Somebody takes the Python stacks of all ranks when the job has hung for long enough. Ranks whose main thread is in no
communication, while most are, are named. Else those that stand in another call than most are, if most stand in one:
a wait for an operation has no frame of its own, so ranks inside may look as if they were in the script.
"""

from __future__ import annotations

import re
from collections import Counter

from whichrank.testbed.bench.methods.hang_watch import HangWatch
from whichrank.testbed.bench.methods.method import Limits, Said
from whichrank.testbed.bench.methods.telemetry import Telemetry

_CALL = re.compile(r"^(\w+) \(\S*torch/distributed/(?:distributed_c10d|_functional_collectives)")
_INSIDE = re.compile(r"torch/distributed/|torch/nn/parallel/distributed|torch/autograd/graph")


class Stacks:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._watch = HangWatch(limits.hang_s, in_flight=False)

    def examine(self, seen: Telemetry) -> list[Said]:
        """See `method.Method`."""
        if not self._watch.begins(seen) or not seen.stacks:
            return []
        out = {rank for rank, frames in seen.stacks.items() if not any(_INSIDE.search(frame) for frame in frames)}
        if out and 2 * len(out) < len(seen.stacks):
            return [Said("hang", frozenset(out), fault_class="H1")]
        calls = {rank: _call(frames) for rank, frames in seen.stacks.items()}
        usual, count = Counter(calls.values()).most_common(1)[0]
        odd = {rank for rank, call in calls.items() if call != usual}
        return [
            Said("hang", frozenset(odd) if 2 * count > len(calls) else frozenset(), fault_class="H2" if odd else None)
        ]


def _call(frames: list[str]) -> str:
    """The outermost call of torch.distributed, or where in it the rank stands, or where else."""
    for frame in reversed(frames):
        if match := _CALL.match(frame):
            return match[1]
    return next((frame for frame in frames if _INSIDE.search(frame)), frames[0] if frames else "")
