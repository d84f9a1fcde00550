"""What was reported of slowness, and when it was so last: nothing of one snapshot alone, and nothing that flickers.

But of a rank that its node says is held back by a limit one snapshot is enough: that is a second witness, and where
iterations take seconds the next snapshot is late.
"""

from __future__ import annotations

from whichrank.model.incident import Reason
from whichrank.slow.findings import KeyedFinding


class SteadyFindings:
    """What was so in two snapshots is reported, or has two witnesses; what has not been so for half a window is over.

    Args:
        window_s: Seconds over which a slowdown is judged.
    """

    def __init__(self, window_s: float) -> None:
        self._keep_s = window_s / 2
        self._seen: dict[str, KeyedFinding] = {}  # in the latest snapshot
        self._last_s: dict[str, float] = {}  # of each that was reported

    def take(self, found: dict[str, KeyedFinding], now_s: float) -> list[KeyedFinding]:
        """What a snapshot has found, by key; returns what may be reported."""
        steady = [
            reported
            for key, reported in found.items()
            if key in self._seen or key in self._last_s or reported.finding.reason == Reason.CPU_LIMIT
        ]
        self._seen = found
        self._last_s |= dict.fromkeys((reported.key for reported in steady), now_s)
        self._last_s = {key: at for key, at in self._last_s.items() if now_s - at < self._keep_s}
        return steady

    def latest(self, keys: set[str]) -> list[KeyedFinding]:
        """Of these, what was reported and was so in the latest snapshot."""
        return [reported for key, reported in self._seen.items() if key in keys and key in self._last_s]

    @property
    def ranks(self) -> set[int]:
        """Those that were slow in the latest snapshot, or may have been."""
        return {rank for reported in self._seen.values() for rank in reported.ranks}

    def is_over(self, key: str) -> bool:
        """Has this not been so for half a window?"""
        return key not in self._last_s
