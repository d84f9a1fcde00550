"""Transfers from rank to rank, as values."""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.model.incident import LinkEnd
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
