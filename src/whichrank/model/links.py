"""Transfers from rank to rank, as values."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from whichrank.model.incident import LinkEnd, Rank
from whichrank.model.iterations import Floats, Ints


@dataclass(frozen=True)
class Transfers:
    """What went from ranks to ranks in a window, by the senders' kernels; one entry per pair.

    Attributes:
        src: Sending rank.
        dst: Receiving rank.
        bytes_acked: Received by the other kernel.
        busy_s: Something was under way.
        receiver_s: Of that, the receiver's window was closed.
        sender_s: Of that, the send buffer was full.
        retransmits: Segments sent again.
        unsent_bytes: Written and not yet sent, at the most.
        delivery: Bytes per second by the kernel's own latest estimate, infinite where it has none.
        lasted_s: The window.
    """

    src: Ints
    dst: Ints
    bytes_acked: Floats
    busy_s: Floats
    receiver_s: Floats
    sender_s: Floats
    retransmits: Floats
    unsent_bytes: Floats
    delivery: Floats
    lasted_s: float

    @property
    def active_s(self) -> Floats:
        """Something was under way, and the receiver had room."""
        return self.busy_s - self.receiver_s


class LinkRate(Struct, frozen=True, kw_only=True):
    """A way from one rank to another on another node, in the latest window: a cell of the transfer matrix."""

    src: Rank
    dst: Rank
    rate: float
    """Bytes per second in which something was under way."""
    best: float | None = None
    """The same in the best window so far; null while no window without a slow rank or link is over."""
    busy: float
    """Share of the window in which something was under way."""


def rate_text(bytes_per_s: float) -> str:
    """A rate as networks are rated."""
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
    """

    src: int
    dst: int
    rate: float
    usual: float
    end: LinkEnd | None
    lost_s: float
    unsent_bytes: int
