"""What must be known of a job to act on it: its ranks, who watches them, its communicators, its iterations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Beginnings:
    """Where iterations of ranks begin that make no optimizer steps.

    Attributes:
        number: Of the latest iteration that is known of each rank, (R,).
        ordinal: Operations begun before it, (R,).
        each: Operations of an iteration, (R,).
    """

    number: Ints
    ordinal: Ints
    each: Ints


@dataclass(frozen=True)
class Stepped:
    """The latest optimizer step of each rank.

    Attributes:
        number: From 1; 0: none is known, (R,).
        at_s: When it was made, on the clock of the analyzer, (R,).
        lasted_s: What the latest two iterations took, the shorter one, the median over ranks; 0: not known.
    """

    number: Ints
    at_s: NDArray[np.float64]
    lasted_s: float


@dataclass(frozen=True)
class Group:
    """A communicator.

    Attributes:
        comm_id: Its number.
        name: As the program calls it.
        members: Global ranks by place.
        backend: What moves its data.
    """

    comm_id: int
    name: str
    members: tuple[int, ...]
    backend: str = ""


@dataclass(frozen=True)
class JobNow:
    """What is known of a job when it is to be paused.

    Attributes:
        ranks: That live, in order.
        agent_of: The agent of each of them.
        groups: Its communicators, but for those that hold the same ranks as another one.
        iteration_s: How long an iteration takes; 0: not known.
        beginnings: Of iterations, where ranks make no optimizer steps.
        stepped: The latest steps; None where none is known.
        carried: Bytes that went over connections, by sending and by receiving rank, where both are known.
        long_groups: Members of communicators that take longer than comparable ones, the longest first.
    """

    ranks: tuple[int, ...]
    agent_of: Mapping[int, str]
    groups: tuple[Group, ...]
    iteration_s: float
    beginnings: Beginnings | None
    stepped: Stepped | None = None
    carried: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    long_groups: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Lately:
    """The latest iterations of a job.

    Attributes:
        ranks: In order, (R,).
        number: Of each iteration, (n,).
        own_s: What each rank computed, seconds, (R, n).
        total_s: From step to step, (R, n).
    """

    ranks: Ints
    number: Ints
    own_s: NDArray[np.float64]
    total_s: NDArray[np.float64]
