"""What was told of slowness, and when it was so last: nothing of one look alone, and nothing that flickers."""

from __future__ import annotations

from whichrank.slow.findings import KeyedFinding


class SteadyFindings:
    """What was so in two looks is told; what has not been so for half a window is over.

    Args:
        window_s: Seconds over which a slowdown is judged.
    """

    def __init__(self, window_s: float) -> None:
        self._keep_s = window_s / 2
        self._seen: dict[str, KeyedFinding] = {}  # in the latest look
        self._last_s: dict[str, float] = {}  # of each that was told

    def take(self, found: dict[str, KeyedFinding], now_s: float) -> list[KeyedFinding]:
        """What a look has found, by key; returns what may be told."""
        steady = [told for key, told in found.items() if key in self._seen or key in self._last_s]
        self._seen = found
        self._last_s |= dict.fromkeys((told.key for told in steady), now_s)
        self._last_s = {key: at for key, at in self._last_s.items() if now_s - at < self._keep_s}
        return steady

    def latest(self, keys: set[str]) -> list[KeyedFinding]:
        """Of these, what was told and was so in the latest look."""
        return [told for key, told in self._seen.items() if key in keys and key in self._last_s]

    @property
    def ranks(self) -> set[int]:
        """Those that were slow in the latest look, or may have been."""
        return {rank for told in self._seen.values() for rank in told.ranks}

    def is_over(self, key: str) -> bool:
        """Has this not been so for half a window?"""
        return key not in self._last_s
