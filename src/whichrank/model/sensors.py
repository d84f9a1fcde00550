"""The registry of sensors: what each is called, where the ring has its state, and what it can see.

The training process reads this too, so nothing heavy is imported. Whatever lists sensors reads it: the agent's rows,
`job.json`, incidents, `watch`, `doctor`. The order is that of `enum wr_sensor` in `native/include/whichrank/ring.h`;
a test holds both together. To add one: `docs/dev/extending.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from whichrank.model.codes import SensorState

StateName = Literal["on", "fallback", "failed", "absent"]


class Sees(Enum):
    """What a sensor can see."""

    OPERATIONS = "operations"
    """Issue and end of each operation, who waits in it, and its signature."""
    TRANSPORT = "transport"
    """Sends and receives of each operation: the probing frame."""
    DEVICE = "device"
    """When an operation starts and ends on the device: `t_start_ns` of its record, state 3 of its in-flight row."""


@dataclass(frozen=True)
class Sensor:
    """One sensor.

    Attributes:
        name: As in `job.json` and in incidents.
        place: Of its state in the header of a ring.
        sees: What it can see.
    """

    name: str
    place: int
    sees: frozenset[Sees]


C10D: Final = Sensor("c10d", 0, frozenset({Sees.OPERATIONS}))
SOCKET: Final = Sensor("socket", 1, frozenset({Sees.TRANSPORT}))
NCCL: Final = Sensor("nccl", 2, frozenset({Sees.TRANSPORT, Sees.DEVICE}))
NCCL_API: Final = Sensor("nccl_api", 3, frozenset({Sees.OPERATIONS}))
SENSORS: Final = (C10D, SOCKET, NCCL, NCCL_API)

NAME_OF_STATE: Final[dict[SensorState, StateName]] = {
    SensorState.ON: "on",
    SensorState.FALLBACK: "fallback",
    SensorState.FAILED: "failed",
}
"""States that are reported; one that is absent is left out."""
_ON_DEVICE: Final = "ccl"


def runs_on_device(backend: str) -> bool:
    """Do operations of this backend run on a device, so that the host sees neither their start nor their end?

    True of NCCL and its kin (RCCL, HCCL, XCCL), and of one backend of several: `cpu:gloo,cuda:nccl`. What such an
    operation does after it was issued, a sensor that sees the device must say.
    """
    return _ON_DEVICE in backend.lower()
