"""Who holds others up, since when, and how much of that time it has worked.

The wait at the end of a chain is older than what its last link has to do with it: a pipeline stage that was waited for
in vain passes its wait on to the next one, which has just begun. And a rank that writes a checkpoint is given more
time; when it is done, that time does not count all at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from whichrank.model.picture import Bools


class Holding:
    """By rank, since when others wait for it while it waits for nobody. Times are seconds on the analyzer's clock."""

    def __init__(self) -> None:
        self._since_s = np.full(0, np.inf)
        self._busy_s = np.zeros(0)
        self._begun_s = self._looked_s = np.inf
        self._shown_in: object = None

    def nobody(self) -> None:
        """Nobody is waited for."""
        self._since_s[:] = np.inf
        self._begun_s, self._shown_in = np.inf, None

    def look(self, waited_for: Iterable[int], busy: Bools, shown_in: object, now_s: float) -> None:
        """Take who is waited for now.

        Args:
            waited_for: Ranks that others wait for and that wait for nobody.
            busy: By rank, whether it works.
            shown_in: The operation in which it shows; as long as it is the same one, it is the same wait for another.
            now_s: The time.
        """
        new_s = now_s if shown_in != self._shown_in else min(now_s, float(self._since_s.min(initial=np.inf)))
        grown = len(busy) - len(self._since_s)
        since_s = np.append(self._since_s, np.full(grown, np.inf))
        busy_s = np.append(self._busy_s, np.zeros(grown))
        held = np.zeros(len(busy), np.bool_)
        held[list(waited_for)] = True
        worked = held & busy & (since_s < np.inf)
        self._busy_s = np.where(held & (since_s < np.inf), busy_s, 0.0) + np.where(worked, now_s - self._looked_s, 0.0)
        self._since_s = np.where(held, np.minimum(since_s, new_s), np.inf)
        self._begun_s, self._looked_s, self._shown_in = min(self._begun_s, now_s), now_s, shown_in

    def onset_s(self, ranks: Iterable[int], onset_s: float) -> float:
        """When the first of these began to hold others up, if the wait, which began at `onset_s`, is another's too."""
        since_s = float(self._since_s[self._known(ranks)].min(initial=np.inf))
        return max(onset_s, since_s) if self._begun_s < since_s < np.inf else onset_s

    def busy_s(self, ranks: Iterable[int]) -> float:
        """Seconds that all of these have worked while they were waited for."""
        known = self._known(ranks)
        return float(self._busy_s[known].min()) if len(known) else 0.0

    def _known(self, ranks: Iterable[int]) -> list[int]:
        return [r for r in ranks if r < len(self._since_s)]
