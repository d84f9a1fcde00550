"""Operations that agents of busy jobs send before the rest of a batch: what is taken together costs less.

They say nothing of what a rank does now, so nothing is lost by waiting for the batch that does: in a quiet job it comes
every five seconds, and at once where something may be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whichrank.model.telemetry import Batch
from whichrank.store.merged import is_portion

MOST_WAITING: Final = 1 << 22
"""Bytes of operations that wait, of all agents together."""
LONGEST_S: Final = 6.0
"""For which a portion waits: longer than agents that are well are silent."""


class Portions:
    """Those that wait for the rest of their batch."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Batch]] = {}  # by agent, in the order in which they came
        self._bytes = 0
        self._since_s = 0.0

    def with_rest(self, batches: Sequence[Batch], now_s: float) -> list[Batch]:
        """What is to be taken now, of these and of those that waited; each agent's in the order in which they came."""
        now: list[Batch] = []
        for batch in batches:
            if is_portion(batch):
                self._wait(batch, now_s)
                continue
            if not batch.is_well:  # a word between two batches
                now += self._of(batch.agent)
            now.append(batch)
        return now + self.due(now_s)

    def due(self, now_s: float) -> list[Batch]:
        """All of them, if there are too many, or the first has waited for too long."""
        if self._waiting and (self._bytes > MOST_WAITING or now_s - self._since_s > LONGEST_S):
            return self.all()
        return []

    def all(self) -> list[Batch]:
        """All of them."""
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        return [batch for of_agent in waiting.values() for batch in of_agent]

    def _wait(self, portion: Batch, now_s: float) -> None:
        if not self._waiting:
            self._since_s = now_s
        self._waiting.setdefault(portion.agent, []).append(portion)
        self._bytes += len(portion.records)

    def _of(self, agent: str) -> list[Batch]:
        if not self._waiting:
            return []
        waited = self._waiting.pop(agent, [])
        self._bytes -= sum(len(portion.records) for portion in waited)
        return waited
