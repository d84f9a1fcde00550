"""One pause of a job: all ranks wait behind the same iteration, and go on.

First it is asked how far ranks have come. Then all are kept behind an iteration that none has reached: an optimizer
step, or so many operations. When all have come there nobody is in an operation, since no rank has begun one that
another keeps back. Where there are no steps it is inferred which operations are the same iteration's, so there what
is in flight must be complete besides. Whatever is not as it should be ends the pause: the job goes on, and why is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.commands import HoldGate, RankTest
from whichrank.model.job_now import Beginnings, Stepped
from whichrank.model.telemetry import GATE_REPORTED

Ints = NDArray[np.int64]
AHEAD_S: Final = 0.5
"""Seconds of iterations that are left to ranks: so long what is told may take to reach them all."""
HEARD_WITHIN_S: Final = 3.0
"""In which all ranks must have said how far they have come."""
LATE: Final = 3.0
"""Times as long as the iterations should take that are left, in which all must have come."""
LATE_S: Final = 2.0
"""And so many seconds."""
LATEST_S: Final = 40.0
"""For longer nobody waits that all come: who asks has given up by then."""
SILENT_S: Final = 1.0
"""After which nobody renews the gate of a rank of which nothing is heard: it has gone on."""
COMPLETE_WITHIN_S: Final = 1.0
"""In which operations that are in flight must be complete when all have come: nobody computes, so nothing else is."""
OPEN_WITHIN_S: Final = 1.0
"""In which all must have said that they have gone on."""


class Phase(Enum):
    """How far a pause has come."""

    LOOKING = "looking"
    CLOSING = "closing"
    CLOSED = "closed"
    OPENING = "opening"
    OVER = "over"


class Pause:
    """Of some ranks.

    Args:
        number: From 1; another one for each pause of a job.
        ranks: All ranks of the job, in order.
        now_s: When it is asked for.
        iteration_s: How long an iteration takes.
        longest_s: Ranks go on after so long in any case.
        beginnings: Of iterations, where ranks make no optimizer steps.
        stepped: The latest steps, as far as they are known: how long the present iteration has lasted.

    Attributes:
        problem: Why it was given up; empty while it was not.
    """

    def __init__(
        self,
        number: int,
        ranks: Sequence[int],
        now_s: float,
        *,
        iteration_s: float,
        longest_s: float,
        beginnings: Beginnings | None = None,
        stepped: Stepped | None = None,
    ) -> None:
        self.number, self.ranks, self.phase, self.problem = number, np.asarray(ranks), Phase.LOOKING, ""
        self._since_s = now_s
        self._iteration_s, self._longest_s = max(iteration_s, 1e-4), longest_s
        self._beginnings, self._stepped = beginnings, stepped
        if stepped is not None and stepped.lasted_s:
            self._iteration_s = max(stepped.lasted_s, 1e-4)  # it may have become slow just now
        self._rows = np.zeros(len(self.ranks), GATE_REPORTED)
        self._rows["rank"] = -1
        self._heard_s = np.full(len(self.ranks), -np.inf)
        self._at_step = 0
        self._at_ordinals: Ints = np.zeros(0, np.int64)
        self._at_ordinal: dict[int, int] = {}  # the same by rank
        self._arrive_by_s = self._came_s = math.inf
        self._renewal = 0

    def feed(self, rows: np.ndarray[Any, Any], now_s: float) -> None:
        """Take what ranks say of their gates: rows of GATE_REPORTED."""
        at = np.searchsorted(self.ranks, rows["rank"])
        at[at == len(self.ranks)] = 0
        known = self.ranks[at] == rows["rank"]
        self._rows[at[known]] = rows[known]
        self._heard_s[at[known]] = now_s
        self.advance(now_s)

    def lose(self, rank: int, why: str, now_s: float) -> None:
        """A rank cannot be waited for: the pause is over."""
        if rank in self.ranks:
            self.open(f"rank {rank} {why}", now_s)

    def open(self, problem: str, now_s: float) -> None:
        """Let all go on."""
        if self.phase not in (Phase.OPENING, Phase.OVER):
            self.problem = problem
            self.phase, self._since_s = Phase.OPENING, now_s

    @property
    def rows(self) -> np.ndarray[Any, Any]:
        """What each rank has said last, as GATE_REPORTED, (R,)."""
        return self._rows

    @property
    def paused_s(self) -> float:
        """How long the rank has waited that waited longest, as far as it is known."""
        gates = self._rows["gate"]
        waited = (gates["arrived"] == self.number) & (gates["opened"] == self.number)
        lasted_ns = gates["opened_ns"].astype(np.int64) - gates["arrived_ns"].astype(np.int64)
        return float(lasted_ns[waited].max(initial=0)) / 1e9

    def left_s(self, now_s: float) -> float:
        """Seconds that ranks still wait, while they do."""
        return self._since_s + self._longest_s - now_s

    def renew(self) -> None:
        """Orders are another renewal from now on."""
        self._renewal += 1

    def order(self, ranks: Sequence[int], tests: Sequence[RankTest] = ()) -> HoldGate:
        """How the gates of these ranks should be now: to be said again several times a second."""
        return HoldGate(
            pause=self.number,
            renewal=self._renewal,
            longest_s=self._longest_s,
            at_step=self._at_step,
            at_ordinals=tuple((rank, self._at_ordinal[rank]) for rank in ranks if rank in self._at_ordinal),
            tests=tuple(tests) if self.phase is Phase.CLOSED else (),
            is_over=self.phase in (Phase.OPENING, Phase.OVER),
        )

    def advance(self, now_s: float) -> None:
        """Time goes on."""
        gates = self._rows["gate"]
        silent = self.ranks[now_s - self._heard_s > SILENT_S]
        if len(silent) and self.phase in (Phase.CLOSING, Phase.CLOSED):
            self.open(f"nothing was heard of rank {silent[0]}", now_s)
        elif self.phase is Phase.LOOKING:
            if not len(silent):
                self._close(now_s)
            elif now_s - self._since_s > HEARD_WITHIN_S:
                self.open(f"rank {silent[0]} did not say how far it has come", now_s)
        elif self.phase is Phase.CLOSING:
            has_come = gates["arrived"] == self.number
            if has_come.all():
                self._hold(now_s)
            elif now_s > self._arrive_by_s:
                self.open(f"rank {self.ranks[~has_come][0]} did not come so far", now_s)
        elif self.phase is Phase.CLOSED:
            gone_on = self.ranks[gates["opened"] == self.number]
            if len(gone_on):
                self.open(f"rank {gone_on[0]} went on by itself", now_s)
        elif self.phase is Phase.OPENING:
            waits = (gates["arrived"] == self.number) & (gates["opened"] != self.number)
            if not waits.any() or now_s - self._since_s > OPEN_WITHIN_S:
                self.phase = Phase.OVER

    def _close(self, now_s: float) -> None:
        """Choose the iteration behind which all are kept: none has reached it, nor will have before it hears of it."""
        ahead = 1 + math.ceil(AHEAD_S / self._iteration_s)
        steps = self._rows["gate"]["steps"].astype(np.int64)
        if (steps > 0).all():
            if self._have_just_begun(steps, now_s):
                ahead = 1
            if np.ptp(steps) > ahead:
                self.open("its ranks have made different numbers of optimizer steps", now_s)
                return
            self._at_step = int(steps.max()) + ahead
            left = self._at_step - int(steps.min())
        elif self._beginnings is not None:
            known = self._beginnings
            now = known.number + (self._rows["ordinal"].astype(np.int64) - known.ordinal) // np.maximum(known.each, 1)
            target = int(now.max()) + ahead
            self._at_ordinals = known.ordinal + (target - known.number) * known.each
            self._at_ordinal = dict(zip(self.ranks.tolist(), self._at_ordinals.tolist(), strict=True))
            left = target - int(now.min())
        else:
            self.open("where iterations of this job begin is not known", now_s)
            return
        if LATE * left * self._iteration_s > LATEST_S:
            self._at_step, self._at_ordinals, self._at_ordinal = 0, self._at_ordinals[:0], {}
            self.open("its iterations take too long to wait for the next one", now_s)
            return
        self.phase = Phase.CLOSING
        self._arrive_by_s = now_s + LATE_S + LATE * left * self._iteration_s

    def _have_just_begun(self, steps: Ints, now_s: float) -> bool:
        """Whether all ranks are in the same iteration, and so much of it is left that they hear of it before its end.

        Args:
            steps: Made by each, as they say themselves, (R,).
            now_s: The time.
        """
        known = self._stepped
        if known is None or np.ptp(steps) or (known.number != steps).any():
            return False
        left_s = float(known.at_s.min()) + known.lasted_s - now_s
        return left_s >= AHEAD_S

    def _hold(self, now_s: float) -> None:
        gates = self._rows["gate"]
        if self._at_step:
            astray = gates["steps"] != self._at_step
        else:
            astray = gates["arrived_ordinal"].astype(np.int64) != self._at_ordinals
        in_flight = (self._rows["in_flight"] > 0) & (not self._at_step)
        self._came_s = min(self._came_s, now_s)
        if astray.any():
            self.open(f"rank {self.ranks[astray][0]} waits at another point than the others", now_s)
        elif not in_flight.any():
            self.phase, self._since_s = Phase.CLOSED, now_s
        elif now_s - self._came_s > COMPLETE_WITHIN_S:
            self.open(f"rank {self.ranks[in_flight][0]} has an operation in flight that does not complete", now_s)
