"""How far ranks are on their groups by a log's lines, each kept once however often it is said.

A job that hangs says the same thing again and again, and a gigabyte holds millions of such lines. Of lines of a rank on
a group that say the same, the first and the latest are kept: both times count where attempts are told apart. Where
there are too many others, those are left out that say what lies between two lines of one attempt: what decides is where
a rank stood first and last, where its counters go back, and what ran out of time first in each attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from whichrank.errors import FormatError
from whichrank.intake.log_time import UNTIMED

MOST_LINES: Final = 1 << 17
"""Beyond so many that differ, those that decide nothing are left out."""
MOST_KEPT: Final = 1 << 19
"""Lines that decide, at most: twenty groups of 26,000 ranks. They take 300 MB."""
SLACK_S: Final = 60.0
"""An operation that began so long after another one had run out of time is of a later attempt; see `attempts`."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """An operation that a rank has waited for too long.

    Attributes:
        seq: Its number.
        op: As torch names it, in lower case.
        count: Elements of its input, -1 if it is not said.
        out_count: The same of its output.
        at_s: When it was said; see `log_time`.
        ran_s: How long it had been under way, 0 if that is not said.
    """

    seq: int
    op: str
    count: int
    out_count: int
    at_s: float = UNTIMED
    ran_s: float = 0.0

    @property
    def began_s(self) -> float:
        """When it had begun, `UNTIMED` if that is not known."""
        return self.at_s - self.ran_s if self.at_s >= 0 and self.ran_s else UNTIMED


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a rank is on a group.

    Attributes:
        rank: Global rank.
        group: Name of the group.
        desc: What it is for, "" if it is not said.
        group_rank: Its rank in the group.
        enqueued: Number of the last collective that it has enqueued, -1 none.
        completed: The same of the last that is complete.
        timed_out: What it waited for, None if it did not say.
        at_s: When it was said; see `log_time`.
    """

    rank: int
    group: str
    desc: str
    group_rank: int
    enqueued: int
    completed: int
    timed_out: TimedOut | None = None
    at_s: float = UNTIMED


Place = tuple[int, str, int]
"""Rank, group, group rank."""


@dataclass(slots=True)
class _Line:
    order: int
    desc: str
    enqueued: int
    completed: int
    op: TimedOut | None
    at_s: float
    decides: bool = False

    def goes_back(self, later: _Line) -> bool:
        return later.enqueued < self.enqueued or later.completed < self.completed


class Standings:
    """Such lines in their order.

    Attributes:
        seen: Lines.
        left_out: Those that are not kept and say something that no other line says.
    """

    def __init__(self) -> None:
        self.seen = self.left_out = 0
        self._places: dict[Place, list[_Line]] = {}
        self._repeated: dict[Place, bool] = {}
        self._count, self._most = 0, MOST_LINES
        self._first_s = UNTIMED

    def add(self, place: Place, desc: str, enqueued: int, completed: int, op: TimedOut | None, at_s: float) -> None:
        """One more line.

        Raises:
            FormatError: More lines decide something than a log of a job has.
        """
        self.seen += 1
        lines = self._places.get(place)
        if lines is None:
            lines = self._places[place] = []
        else:
            last = lines[-1]
            if (
                last.completed == completed
                and last.enqueued == enqueued
                and (last.op is op or last.op == op)
                and last.desc == desc
            ):
                if self._repeated[place]:
                    last.order, last.at_s = self.seen, at_s
                    return
                self._repeated[place] = True
                lines.append(_Line(self.seen, desc, enqueued, completed, op, at_s))
                self._count += 1
                return
        self._repeated[place] = False
        lines.append(_Line(self.seen, desc, enqueued, completed, op, at_s, self._begins_attempt(op)))
        self._count += 1
        if self._count > self._most:
            self._leave_out()

    def _begins_attempt(self, op: TimedOut | None) -> bool:
        """Is it the first operation that ran out of time in its attempt?"""
        if op is None or op.at_s < 0 or (self._first_s >= 0 and op.began_s <= self._first_s + SLACK_S):
            return False
        self._first_s = op.at_s
        return True

    def _leave_out(self) -> None:
        for place, lines in self._places.items():
            kept = list(_that_decide(lines))
            self.left_out += len(lines) - len(kept)
            self._count -= len(lines) - len(kept)
            self._places[place] = kept
            self._repeated[place] = False
        if self._count > MOST_KEPT:
            raise FormatError("it says too much of ranks to be a log")
        self._most = max(MOST_LINES, 2 * self._count)

    def __iter__(self) -> Iterator[Standing]:
        rows = [(line.order, place, line) for place, lines in self._places.items() for line in lines]
        rows.sort(key=lambda row: row[0])
        for _, (rank, group, group_rank), one in rows:
            yield Standing(rank, group, one.desc, group_rank, one.enqueued, one.completed, one.op, one.at_s)


def _that_decide(lines: list[_Line]) -> Iterable[_Line]:
    """Of lines of one place, the first and the last, and those at which something begins or goes back.

    The last one is told what ran out of time before it, where it does not say it itself.
    """
    op, has_op = None, False
    for at, one in enumerate(lines):
        is_first_op, has_op = one.op is not None and not has_op, has_op or one.op is not None
        op = one.op or op
        goes_back = at > 0 and lines[at - 1].goes_back(one)
        will_go_back = at + 1 < len(lines) and one.goes_back(lines[at + 1])
        if goes_back:
            op = one.op
        if one.decides or is_first_op or goes_back or will_go_back or at in (0, len(lines) - 1):
            if at and not goes_back:
                one.op = op
            yield one
