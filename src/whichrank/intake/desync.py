"""torch's desync report (TORCH_NCCL_DESYNC_DEBUG=1): which ranks have finished and which have started which collective.

    #166 finished ranks:
      [5] finished ALLREDUCE
    #167 started ranks:
      [0, 1, 2, 3, 4, 6, 7] started ALLREDUCE

Its ranks are those of one group. They are global ones if who writes it has the same number in both, or says no global
one; else nothing is read of it.
"""

from __future__ import annotations

import re
from typing import Final

from whichrank.intake.flight_dump import OF_ALL
from whichrank.intake.launchers import numbers_in
from whichrank.intake.log_time import UNTIMED
from whichrank.intake.standings import Standing, TimedOut

_SAID: Final = re.compile(
    r"#(?P<number>\d{1,18}) (?:finished|started) ranks:"
    r"|\[(?P<ranks>[\d, ]{1,65536})\] (?:"
    r"finished collective #(?P<behind>\d{1,18}), but didn't join collective #\d{1,18}"
    r"|joined but didn't finish collective #(?P<stuck>\d{1,18})"
    r"|(?P<state>finished|started) (?P<op>[A-Za-z_]{1,64})(?=\s|$))"
)
"""What a line says; all of it, where a report has lost its ends of lines."""
HINTS: Final = ("collective #", " ranks:")


class Desync:
    """The lines of such reports."""

    def __init__(self) -> None:
        self._number = 0
        self._at: dict[int, Standing] = {}

    def see(self, line: str, at_s: float = UNTIMED) -> None:
        """A line that may be of a report."""
        for found in _SAID.finditer(line):
            number, ranks, behind, stuck, state, name = found.groups()
            if number:
                self._number = int(number)
            elif behind:
                self._stand(ranks, int(behind), int(behind), None, at_s)
            elif stuck:
                self._stand(ranks, int(stuck), int(stuck) - 1, None, at_s)
            elif self._number:
                done, seq = state == "finished", self._number
                op = None if done else TimedOut(seq, name.lower(), -1, -1, at_s)
                self._stand(ranks, seq, seq if done else seq - 1, op, at_s)

    def _stand(self, ranks: str, enqueued: int, completed: int, op: TimedOut | None, at_s: float) -> None:
        for rank in numbers_in(ranks):
            self._at[rank] = Standing(rank, "0", OF_ALL[0], rank, enqueued, completed, op, at_s)

    def standings(self, known: set[int]) -> list[Standing]:
        """How far ranks are by it, but for those of whom more is known.

        Args:
            known: Those ranks.
        """
        return [one for rank, one in self._at.items() if rank not in known]
