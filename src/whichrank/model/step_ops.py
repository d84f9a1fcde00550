"""What the workers of a job do in each step, which operation needs which, and how long each took, step by step.

It is what a what-if analysis goes through again with other durations (`stage.what_if`), whoever measured it: a
recording of spans, or a sensor that sees the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StepOps:
    """Operations of one step of a job, the same in each step; a worker is a rank that was traced.

    Attributes:
        rank: Of the worker of each operation, (n,).
        replica: That the worker belongs to, (n,).
        stage: Pipeline stage of the worker, (n,).
        what: Index into `names`, (n,).
        microbatch: On which it works, (n,); -1 of what is done once in a step.
        names: Of operations; those with one name do the same work, wherever they are.
        meeting: Number of the meeting in which it takes part, (n,): a transfer begins when the last of its members has
            come. -1 of a computation.
        before: The earlier operation of each dependency, (e,).
        after: The later one, (e,).
        lasted_s: Seconds, (steps, n): of a computation all of them, of a transfer those after the last had come.
        steps: Their numbers, (steps,).
    """

    rank: Ints
    replica: Ints
    stage: Ints
    what: Ints
    microbatch: Ints
    names: tuple[str, ...]
    meeting: Ints
    before: Ints
    after: Ints
    lasted_s: NDArray[np.float64]
    steps: Ints

    @property
    def is_transfer(self) -> NDArray[np.bool_]:
        """Which operations are no computation, (n,)."""
        return np.asarray(self.meeting >= 0)
