"""Transfers from rank to rank, as values."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from msgspec import Struct

from whichrank.model.incident import LinkEnd, Rank
from whichrank.model.iterations import Bools, Floats, Ints


@dataclass(frozen=True)
class Transfers:
    """What went from ranks to ranks in a window, by the senders' kernels and the receivers' reads; one entry per pair.

    Attributes:
        src: Sending rank.
        dst: Receiving rank.
        bytes_acked: Received by the other kernel.
        busy_s: Something was under way.
        receiver_s: Of that, the receiver's window was closed.
        sender_s: Of that, the send buffer was full.
        steady_bytes: The lesser of what the other kernel received in the latest two halves of the window, 0 if there
            are none yet: of what goes over only once, a rate says little.
        resent: The lesser share of the segments that were sent again in them: a burst of the job's own makes queues
            overflow for a moment, a bad way loses all the time.
        resent_lately: The same share in the latest half alone.
        unsent_bytes: Written and not yet sent, at the most.
        unacked_bytes: Written and not yet acknowledged, summed over the snapshots.
        unread_bytes: Come in at the receiver and not yet read by it, summed over the snapshots.
        delivery: Bytes per second by the kernel's own latest estimate, infinite where it has none or nothing went over.
        arrived_bytes: Read by the receiver so soon after the read before that the pace is known.
        arrival: Bytes per second at which half of them or more came, NaN where none are known.
        lasted_s: The window.
    """

    src: Ints
    dst: Ints
    bytes_acked: Floats
    busy_s: Floats
    receiver_s: Floats
    sender_s: Floats
    steady_bytes: Floats
    resent: Floats
    resent_lately: Floats
    unsent_bytes: Floats
    unacked_bytes: Floats
    unread_bytes: Floats
    delivery: Floats
    arrived_bytes: Floats
    arrival: Floats
    lasted_s: float

    def of(self, chosen: Bools) -> Transfers:
        """Only these pairs."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        fewer: dict[str, Any] = {name: of[chosen] for name, of in columns.items() if isinstance(of, np.ndarray)}
        return replace(self, **fewer)

    @property
    def active_s(self) -> Floats:
        """Something was under way, and the receiver had room."""
        return self.busy_s - self.receiver_s


class LinkRate(Struct, frozen=True, kw_only=True):
    """A way from one rank to another on another node, in the latest window: a cell of the transfer matrix."""

    src: Rank
    dst: Rank
    rate: float
    """Bytes per second: the pace of arrival where it is known, else while something was under way."""
    best: float | None = None
    """The same in the best window so far; null while no window without a slow rank or link is over."""
    busy: float
    """Share of the window that what went over took at this rate."""
    paced: bool
    """The rate is the pace of arrival; two rates of different kinds cannot be compared."""


def rate_text(bytes_per_s: float) -> str:
    """A rate as networks are rated."""
    if bytes_per_s >= 125e6:
        return f"{bytes_per_s * 8 / 1e9:.1f} Gbit/s"
    return f"{bytes_per_s * 8 / 1e6:.{0 if bytes_per_s >= 1e6 else 1}f} Mbit/s"


@dataclass(frozen=True)
class SlowLink:
    """A way from one rank to another that is slower than comparable ones.

    Attributes:
        src: Sending rank.
        dst: Receiving rank.
        rate: Bytes per second in which something was under way.
        usual: The same of comparable links.
        end: `sender`, `receiver` or `path`, where the kernel's evidence names it.
        lost_s: Seconds of the window that it took longer than comparable ones would have.
        unsent_bytes: At the most.
        carried_bytes: In the window.
        is_paced: The rates are the pace of arrival, else those of the sender's kernel.
        stalls: Something is under way most of the time.
    """

    src: int
    dst: int
    rate: float
    usual: float
    end: LinkEnd | None
    lost_s: float
    unsent_bytes: int
    carried_bytes: int = 0
    is_paced: bool = False
    stalls: bool = False
