"""Slowness that moves from rank to rank: each would be named in its turn, and it would help nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WANDERS: Final = 3
"""Ranks of which one after the other was slow."""
BACK: Final = 2
"""Windows for which that is remembered."""


@dataclass
class _Spell:
    """For how long a rank was slow without a pause."""

    began_s: float
    last_s: float


class Turns:
    """Which ranks were slow lately, and are no more.

    Args:
        window_s: Seconds over which a slowdown is judged.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._spells: dict[int, _Spell] = {}
        self._are_taken = False

    def take(self, slow: set[int], suspects: set[int], now_s: float) -> bool:
        """Do ranks take turns?

        So it is if several were slow, one after the other, within two windows, and have not been for half of one.
        Those that are slow at once do not take turns: each of them may be at fault, also where a snapshot misses one.

        Args:
            slow: Ranks that delay the job now.
            suspects: Those that take longer, whether it delays anybody or not.
            now_s: The time.
        """
        self._spells = {r: one for r, one in self._spells.items() if now_s - one.last_s < BACK * self._window_s}
        over = [one for one in self._spells.values() if now_s - one.last_s >= self._window_s / 2]
        for rank in slow | (self._spells.keys() & suspects):
            spell = self._spells.get(rank)
            if spell is None or now_s - spell.last_s >= self._window_s / 2:
                spell = self._spells[rank] = _Spell(now_s, now_s)
            spell.last_s = now_s
        if slow:
            since_s = min(self._spells[rank].began_s for rank in slow)
            self._are_taken = _in_turn(over, since_s) >= WANDERS - 1
        else:
            self._are_taken &= _in_turn(over, now_s) >= WANDERS - 1
        return self._are_taken


def _in_turn(spells: list[_Spell], until_s: float) -> int:
    """How many of them, each seen in two snapshots at least, followed one another before that time."""
    count, free_s = 0, float("-inf")
    for spell in sorted(spells, key=lambda one: one.last_s):
        if free_s < spell.began_s < spell.last_s < until_s:
            count, free_s = count + 1, spell.last_s
    return count
