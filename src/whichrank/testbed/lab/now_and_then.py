"""What comes and goes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import cycle


class NowAndThen:
    """Does something, and undoes it, in turns of equal length, until it is closed; it ends undone.

    Args:
        do: Begins each first span.
        undo: Begins each second one.
        every_s: Length of a span.
    """

    def __init__(self, do: Callable[[], None], undo: Callable[[], None], every_s: float) -> None:
        self._turns = cycle((do, undo))
        self._undo = undo
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lab-now-and-then", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        for turn in self._turns:
            turn()
            if self._over.wait(self._every_s):
                break
        self._undo()

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()
