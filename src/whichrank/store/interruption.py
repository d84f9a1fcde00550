"""The time from which on what ranks do is the consequence of a signal that asks the whole job to end."""

from __future__ import annotations

import math

import numpy as np

from whichrank.model.ends import Ends
from whichrank.model.picture import Bools

GRACE_S = 30.0
"""So long a job that is asked to end may go on before it is ended by force (Kubernetes, Slurm, torchrun)."""
KEYBOARD_GRACE_S = 5.0
"""The same for SIGINT: whoever presses Ctrl-C expects the end at once."""
NOTED_LATE_S = 0.1
"""A signal is written down so much later, at most, than it reached the job's own processes."""
BY_FORCE_S = 600.0
"""A scheduler that has asked waits no longer than this before it ends all ranks by SIGKILL."""


class Interruption:
    """Whether somebody is ending the job, and since when. Times are seconds on the analyzer's clock.

    Attributes:
        since_s: When the first signal came of those that are not over; infinite if there is none.
        until_s: A rank that issues operations after this has survived them.
        last_s: When the last signal of all came; minus infinite if none did.
    """

    def __init__(self) -> None:
        self.since_s, self.until_s, self.last_s = math.inf, -math.inf, -math.inf
        self._known: set[tuple[str, int]] = set()

    @property
    def is_on(self) -> bool:
        """Is the job being ended?"""
        return self.since_s < math.inf

    def take(self, node: str, at_ns: int, at_s: float, name: str) -> None:
        """A node says a signal; one that is reported again (its agent was started again) is known already.

        Args:
            node: Who says it.
            at_ns: When it came, on the clock of that node.
            at_s: The same on the analyzer's clock, at the earliest.
            name: Of the signal.
        """
        if (node, at_ns) in self._known:
            return
        self._known.add((node, at_ns))
        self.since_s = min(self.since_s, at_s - NOTED_LATE_S)
        self.until_s = max(self.until_s, at_s + (KEYBOARD_GRACE_S if name == "SIGINT" else GRACE_S))
        self.last_s = max(self.last_s, at_s)

    def end(self) -> None:
        """The job has survived it."""
        self.since_s = math.inf

    def leads_to(self, ended_s: float) -> bool:
        """May the end of all ranks at this time be the force that follows a signal?"""
        return self.last_s <= ended_s <= self.last_s + BY_FORCE_S

    def consequences(self, ends: Ends) -> Bools:
        """Ranks that ended, raised, failed or began to end since the signal."""
        since = [t > self.since_s for t in (ends.ended_s, ends.closed_s, ends.exception_s, ends.failure_s)]
        return np.asarray(np.logical_or.reduce(since))

    def without_consequences(self, ends: Ends) -> Ends:
        """How ranks had ended before the signal."""
        if not self.is_on:
            return ends
        ended = (ends.ended_s > self.since_s) | (ends.closed_s > self.since_s)
        failed = ends.failure_s > self.since_s
        return ends.but_for(ended, ends.exception_s > self.since_s, failed, np.zeros(len(failed)))
