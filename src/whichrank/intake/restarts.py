"""Lines with which a launcher says that it starts a job again: torchrun and its elastic agents, Slurm, Ray, JobSet.

The agent of each node writes such a line, so that a log of a whole job has as many as there are nodes. Those of one
restart have the same number of attempts left; where a line has no number, those of other writers within seconds are of
the same one. Example: `Worker group FAILED. 2/3 attempts left; will restart worker group`, twice, is one restart.

Ray's controller writes several lines of one restart, always in the same order, so a line that does not come behind the
latest one in that order is of another restart. Kubernetes itself starts single containers again while all others go on
waiting for them: that begins no attempt, see `ends`. JobSet starts all of them, and says so in an event. Events are
often printed behind the log of what they began, so they count only where something is said behind them.
"""

from __future__ import annotations

import re
from typing import Final

from whichrank.intake.log_time import UNTIMED, iso_time_s

HINTS: Final = (
    "will restart worker group", "TORCHELASTIC_RESTART_COUNT", "restart_count", "DUE TO JOB REQUEUE",
    "Restarting training worker group", "[State Transition] RUNNING", "Started training worker group of size",
    "Started distributed worker processes", "failure policy action",
)  # fmt: skip
ONE_RESTART_S: Final = 30.0
"""All nodes have written of a restart by then: torchrun ends workers that do not by that time."""
APART_S: Final = 1e-3
"""Restarts between which nothing has a time are so far apart: what is said between them is of an attempt of its own."""
_LEFT: Final = re.compile(r"(\d{1,6})/\d{1,6} attempts left; will restart worker group")
_NUMBER: Final = re.compile(r"\b(?:TORCHELASTIC_RESTART_COUNT|restart_count) ?[=:] ?([1-9]\d{0,5})\b")
_REQUEUED: Final = re.compile(
    r"\*\*\* (?:JOB|STEP) \S{1,64} (?:ON \S{1,255} )?CANCELLED AT (\S{1,32}) DUE TO JOB REQUEUE \*\*\*"
)
_OF_RAY: Final = (
    re.compile(r"\bRestarting training worker group after encountering "),
    re.compile(r"\[State Transition\] RUNNING -> RES(?:TART|IZ)ING\b"),
    re.compile(r"\bStarted (?:training worker group of size \d|distributed worker processes:)"),
)
"""What Ray's controller writes of one restart, in this order."""
_STARTED: Final = len(_OF_RAY) - 1
_BY_JOBSET: Final = re.compile(r"\bapplying RestartJobSet(?:AndIgnoreMaxRestarts)? failure policy action\b")


class Restarts:
    """The restarts of a log.

    Attributes:
        at_s: When each was, see `log_time`.
        is_event: The latest one was said by an event of Kubernetes, which may be printed long after it.
    """

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self.is_event = False
        self._ray_step = _STARTED - 0.5  # the first workers that start are of no restart
        self._number, self._left = 0, -1
        self._said_s, self._alike = UNTIMED, 0

    def see(self, line: str, at_s: float = UNTIMED) -> bool:
        """A line in which one of `HINTS` stands; whether it is the first word of another attempt."""
        is_event = False
        if found := _NUMBER.search(line):
            number = int(found.group(1))
            is_another = number > self._number
            self._number = max(self._number, number)
        elif found := _LEFT.search(line):
            left = int(found.group(1))
            is_another, self._left = left != self._left, left
            self._number += is_another
        elif found := _REQUEUED.search(line):
            at_s = iso_time_s(found.group(1)) if at_s < 0 else at_s
            is_another = not self._is_known(at_s)
            self._number, self._left = 0, -1  # its launcher counts anew
        elif (step := next((step for step, words in enumerate(_OF_RAY) if words.search(line)), -1)) >= 0:
            is_another, self._ray_step = step <= self._ray_step, step
        elif is_event := bool(_BY_JOBSET.search(line)):
            is_another = not self._is_known(at_s)
        elif HINTS[0] in line:
            is_another = not self._is_known(at_s)
            self._number += is_another
        else:
            return False
        if is_another:
            self.is_event = is_event
            self._alike = self._alike + 1 if at_s == self._said_s else 0
            self._said_s = at_s
            self.at_s.append(at_s + APART_S * self._alike if at_s >= 0 else at_s)
        return is_another

    def _is_known(self, at_s: float) -> bool:
        """Is it the word of another node on the latest restart?"""
        last_s = self.at_s[-1] if self.at_s else UNTIMED
        return min(at_s, last_s) >= 0 and at_s - last_s < ONE_RESTART_S
