"""What a library, a driver or a kernel has said itself of ranks, in a log: it saw more than any counter shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Told(StrEnum):
    """The kinds."""

    ABSENT = "absent"
    """The library lists the ranks that have not come to an operation."""
    DEVICE_ERROR = "device_error"
    """The driver reports an error of the device of these ranks, or of one of them."""
    NODE_ERROR = "node_error"
    """The kernel reports an error of what these ranks share: a switch, a processor."""
    NO_ANSWER = "no_answer"
    """NCCL's RAS gets no answer from the processes of these ranks; `seq` is in how many looks."""
    ELSEWHERE = "elsewhere"
    """The main threads of these ranks stand elsewhere than those of most."""
    REQUESTS_LATE = "requests_late"
    """Network requests of these ranks have no completion."""
    REQUESTS_SLOW = "requests_slow"
    """Network requests of these ranks have taken longer than they should."""


@dataclass(frozen=True)
class Report:
    """One such report.

    Attributes:
        told: What it says.
        ranks: Of whom, global ranks.
        text: In its own words, in short; of ELSEWHERE the place.
        waiting: Ranks that are known to have come, or to stand where most do.
        op: The operation, as `whichrank.model.kinds.Kind` numbers it; 0: none.
        seq: Its number, 0 if it has none.
        at_s: When, on the clock of the recording's log; negative: not said.
        usual: Of ELSEWHERE, where the others stand.
    """

    told: Told
    ranks: tuple[int, ...]
    text: str
    waiting: tuple[int, ...] = ()
    op: int = 0
    seq: int = 0
    at_s: float = -1.0
    usual: str = ""
