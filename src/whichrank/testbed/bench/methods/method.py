"""What a method is, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from whichrank.testbed.bench.methods.telemetry import Telemetry
from whichrank.testbed.lab.scenarios import Class


@dataclass(frozen=True)
class Said:
    """A word of a method.

    Attributes:
        kind: What it has detected.
        ranks: That it names.
        links: Pairs of ranks that it names, sender and receiver.
        fault_class: That it gives.
    """

    kind: Literal["hang", "slow"]
    ranks: frozenset[int] = frozenset()
    links: frozenset[tuple[int, int]] = frozenset()
    fault_class: Class | None = None


@dataclass(frozen=True)
class Limits:
    """The same patience for all, as in CCL-D section 6.1: five minutes and one minute there.

    Attributes:
        hang_s: After so long without progress a job hangs.
        window_s: Of the search for what is slow.
    """

    hang_s: float
    window_s: float


class Method(Protocol):
    """Looks at what was seen, some times a second."""

    def examine(self, seen: Telemetry) -> list[Said]:
        """What it says now that it has not said before."""
