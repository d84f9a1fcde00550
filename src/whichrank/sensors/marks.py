"""Wait marks of the Python sensor: the places where a thread of the program blocks on an operation.

"In flight" does not mean "blocked" (DESIGN section 5.1), so the methods of `Work` that wait are wrapped, and so is
`wait_tensor`, through which functional and compiled collectives wait. The wrappers keep the names of what they wrap and
take the object first: by this pybind11 knows that a subclass has not overridden the method.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from whichrank.model.codes import Flag
from whichrank.sensors.abi import DONE, WAIT_CALL, Core
from whichrank.sensors.in_flight import InFlight

_TAKEN = int(Flag.FUTURE_TAKEN)


class Sensor(Protocol):
    """What marks need of the Python sensor."""

    core: Core

    def entry_of(self, work: Any) -> InFlight | None:
        """The operation of a work object."""

    def filling(self, tensor: Any) -> InFlight | None:
        """The operation that fills a tensor."""

    def writes(self, entry: InFlight) -> bool:
        """Whether the ring that the operation began in is still this process's own."""

    def claim(self, work: Any) -> None:
        """The work object of the send or receive that was issued last."""

    def end(self, entry: InFlight, how: int) -> None:
        """The operation has ended."""

    def end_seen(self, entry: InFlight) -> None:
        """It was seen to have ended."""

    def fail(self, entry: InFlight, text: str) -> None:
        """It has failed."""


def mark_waits(sensor: Sensor, work_class: Any) -> None:
    """Make `wait`, `is_completed` and `get_future` of `torch.distributed.Work` mark the ring."""
    plain_wait, plain_is_completed, plain_get_future = (
        work_class.wait,
        work_class.is_completed,
        work_class.get_future,
    )

    @functools.wraps(plain_wait)
    def wait(work: Any, *arguments: Any, **named: Any) -> Any:
        entry = sensor.entry_of(work)
        if entry is None:
            return plain_wait(work, *arguments, **named)
        return waiting(sensor, entry, plain_wait, work, *arguments, **named)

    @functools.wraps(plain_is_completed)
    def is_completed(work: Any) -> Any:
        completed = plain_is_completed(work)
        entry = sensor.entry_of(work)
        if entry is not None and sensor.writes(entry):
            if completed:
                sensor.end_seen(entry)
            else:
                sensor.core.op_polled(entry.ring, entry.op)
        return completed

    @functools.wraps(plain_get_future)
    def get_future(work: Any) -> Any:
        entry = sensor.entry_of(work)
        if entry is not None and sensor.writes(entry):
            sensor.core.op_flag(entry.ring, entry.op, _TAKEN)
        return plain_get_future(work)

    work_class.wait, work_class.is_completed, work_class.get_future = wait, is_completed, get_future


def waiting(sensor: Sensor, entry: InFlight, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run `call`, which blocks until the operation of `entry` has ended, under a wait mark."""
    if not sensor.writes(entry):
        return call(*arguments, **named)
    row = sensor.core.wait_begin(entry.ring, entry.op, WAIT_CALL)
    try:
        result = call(*arguments, **named)
    except BaseException as error:
        sensor.fail(entry, str(error))
        sensor.core.wait_end(entry.ring, entry.op, row)
        raise
    sensor.end(entry, DONE)
    sensor.core.wait_end(entry.ring, entry.op, row)
    return result


def claim_sends(sensor: Sensor, group_class: Any) -> None:
    """Let a send or receive know its work object; Python's methods are the only way to issue one from Python."""

    def claimed(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def issue(*arguments: Any, **named: Any) -> Any:
            work = plain(*arguments, **named)
            sensor.claim(work)
            return work

        return issue

    for name in ("send", "recv", "recv_anysource"):
        if hasattr(group_class, name):
            setattr(group_class, name, claimed(getattr(group_class, name)))


def wait_tensor_kernel(sensor: Sensor, below: Any) -> Callable[..., Any]:
    """The kernel for `_c10d_functional::wait_tensor`, which waits in C++ for the work that fills a tensor."""
    import torch

    redispatch = torch.ops._c10d_functional.wait_tensor.default.redispatch

    def kernel(keyset: Any, tensor: Any) -> Any:
        entry = sensor.filling(tensor)
        if entry is None:
            return redispatch(keyset & below, tensor)
        return waiting(sensor, entry, redispatch, keyset & below, tensor)

    return kernel
