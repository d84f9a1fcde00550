"""When a job has made no progress for the hang timeout: what people wait for before they run a tool by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from whichrank.testbed.bench.methods.telemetry import Telemetry


class HangWatch:
    """No collective or message of the job was issued or completed for so long.

    Args:
        hang_s: Seconds.
        in_flight: While some are in flight; who looks from outside need not know of any.
    """

    def __init__(self, hang_s: float, *, in_flight: bool = True) -> None:
        self._hang_s = hang_s
        self._in_flight = in_flight
        self._before: tuple[Any, ...] = ()
        self._since_s = np.inf
        self._is_reported = False

    def begins(self, seen: Telemetry) -> bool:
        """Whether a hang is seen now for the first time since there was progress."""
        picture = seen.picture
        now = (
            picture.member_issued.tobytes(), picture.member_done.tobytes(), picture.pairs.tobytes(),
            picture.gone.tobytes(),
        )  # fmt: skip
        if now != self._before or (self._in_flight and not len(picture.ops)):
            self._before, self._since_s, self._is_reported = now, seen.now_s, False
            return False
        if self._is_reported or seen.has_ended or seen.now_s - self._since_s < self._hang_s:
            return False
        self._is_reported = True
        return True
