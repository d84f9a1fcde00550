"""Numbers that the ring writes besides kinds: flags, how an operation ended, how a thread waits, states of sensors.

The training process reads this too, so nothing heavy is imported. They are those of
`native/include/whichrank/ring.h`; a test holds both together.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

UNNUMBERED: Final = 1 << 30
"""Counters from here on only compare with each other: which operation of its kind it is, is not known."""
SPLITS: Final = 64
"""Members for which the ring has what an all-to-all sends to each and expects of each."""


class Flag(IntFlag):
    """Flags of an operation."""

    END_INFERRED = 1
    UNEVEN = 2
    SPLITS_CUT = 4
    ASYNC = 8
    FUTURE_TAKEN = 16
    UNTRACKED = 32
    FREE_SIZES = 64  # of recordings: its sizes may differ between members
    FALLBACK = 128


class Status(IntEnum):
    """How an operation ended."""

    DONE = 1
    FAILED = 2
    DROPPED = 3


class WaitHow(IntEnum):
    """What a thread blocked on an operation is doing."""

    NONE = 0
    CALL = 1
    ENTRY = 2
    POLL = 3
    FUTURE = 4  # inferred by the agent, never written by a sensor


class SensorState(IntEnum):
    """State of one sensor of a rank."""

    ABSENT = 0
    ON = 1
    FALLBACK = 2
    FAILED = 3


class GateTest(IntEnum):
    """What a rank measures while it waits at the gate."""

    COMPUTE = 1
    MEMORY = 2
    LINKS = 3


MULTIPLIED: Final = ("float32", "bfloat16", "float16")
"""Types of the numbers that a rank multiplies to measure how fast it computes, in the order of results."""
MIB: Final = 1 << 20
"""Of which a rank says how long it took to come in, at the pace at which it came."""

LINKS_S: Final = 3.0
"""Seconds in which messages are asked for on all links of a test, pass by pass."""
LINK_S: Final = 1.0
"""The same of one pass, at most: flows of others take turns for tenths of a second."""


def link_s(passes: int) -> float:
    """Seconds in which messages are asked for in each of so many passes."""
    return min(LINK_S, LINKS_S / max(1, passes))


class Opened(IntEnum):
    """Why a rank has gone on."""

    NOT = 0
    TOLD = 1
    NOT_RENEWED = 2
    TOO_LONG = 3
