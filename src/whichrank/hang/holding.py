"""Who holds others up, for how long by now, and how much of that time it has worked or was in a marked phase.

The wait at the end of a chain is older than what its last link has to do with it: a pipeline stage that was waited for
in vain passes its wait on to the next one, which has just begun. And a rank that writes a checkpoint is given more
time; when it is done, that time does not count all at once. The time in a phase that the script has marked does not
count at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from whichrank.model.picture import Bools, Floats


class Holding:
    """By rank, for how long others have waited for it while it waited for nobody. Times in seconds, one clock."""

    def __init__(self) -> None:
        self._held = np.zeros(0, np.bool_)
        self._own_s = np.zeros(0)
        self._busy_s = np.zeros(0)
        self._phase_s = np.zeros(0)
        self._shown = np.zeros(0, np.int64)
        self._polled_s: float | None = None

    def nobody(self) -> None:
        """Nobody is waited for."""
        self._held[:] = False
        self._own_s[:] = self._busy_s[:] = self._phase_s[:] = 0.0
        self._shown[:] = 0
        self._polled_s = None

    def note(
        self,
        waited_for: Sequence[int],
        busy: Bools,
        in_phase: Bools,
        shown_in: int,
        onset_s: Floats,
        now_s: float,
    ) -> None:
        """Take who is waited for now.

        Args:
            waited_for: Ranks that others wait for and that wait for nobody.
            busy: By rank, whether it works.
            in_phase: By rank, whether it is in a phase that the script has marked.
            shown_in: The operation in which it shows, as a hash. A rank that waits in between goes on where it was in
                the same operation, and starts anew in another one.
            onset_s: For each of `waited_for` since when it may have held others up, if this is the first snapshot.
            now_s: The time.
        """
        self._grow(len(busy))
        held = np.zeros(len(busy), np.bool_)
        held[waited_for] = True
        anew = held & ~self._held & (self._shown != shown_in)
        self._own_s[anew] = self._busy_s[anew] = self._phase_s[anew] = 0.0
        self._shown[held & ~self._held] = shown_in
        if self._polled_s is None:
            self._own_s[waited_for] = now_s - onset_s
            self._phase_s[waited_for] = np.where(in_phase[waited_for], now_s - onset_s, 0.0)
        else:
            still = held & self._held
            self._own_s[still] += now_s - self._polled_s
            self._busy_s[still & busy & ~in_phase] += now_s - self._polled_s
            self._phase_s[still & in_phase] += now_s - self._polled_s
        self._held, self._polled_s = held, now_s

    def own_s(self, ranks: Iterable[int]) -> float:
        """How long the one of these that has held others up longest has done so; 0 if none does."""
        return float(self._own_s[[r for r in self._known(ranks) if self._held[r]]].max(initial=0.0))

    def busy_s(self, ranks: Iterable[int]) -> float:
        """How long all of these have worked meanwhile, outside of phases."""
        known = self._known(ranks)
        return float(self._busy_s[known].min()) if known else 0.0

    def phase_s(self, ranks: Iterable[int]) -> float:
        """How long any of these was in a phase meanwhile."""
        return float(self._phase_s[self._known(ranks)].max(initial=0.0))

    def _known(self, ranks: Iterable[int]) -> list[int]:
        return [r for r in ranks if r < len(self._held)]

    def _grow(self, size: int) -> None:
        more = size - len(self._held)
        if more > 0:
            self._held = np.append(self._held, np.zeros(more, np.bool_))
            self._own_s = np.append(self._own_s, np.zeros(more))
            self._busy_s = np.append(self._busy_s, np.zeros(more))
            self._phase_s = np.append(self._phase_s, np.zeros(more))
            self._shown = np.append(self._shown, np.zeros(more, np.int64))
