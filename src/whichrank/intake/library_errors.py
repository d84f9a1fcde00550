"""Errors in which a library says itself who has not come, what does not match, or that a peer is gone.

`monitoredBarrier` lists who is absent. With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares what ranks call and says
which two differ. Gloo says that a message has not come or that a peer closed, and names an address and no rank.
"""

from __future__ import annotations

import re
from typing import Final

from whichrank.intake.flight_dump import OF_ALL
from whichrank.intake.launchers import numbers_in
from whichrank.intake.lines.prefixes import MOST_RANK, Who
from whichrank.intake.log_time import UNTIMED
from whichrank.intake.plain_text import for_people
from whichrank.intake.standings import Standing, TimedOut
from whichrank.model.kinds import Kind
from whichrank.model.reports import Report, Told

MOST_TEXTS: Final = 16
_ABSENT: Final = re.compile(r"Ranks? ([\d, ]{1,65536}) failed to pass monitoredBarrier in (\d{1,12}) ms")
_CAME: Final = re.compile(r"Rank (\d{1,7}) successfully reached monitoredBarrier")
_PRINTS: Final = re.compile(
    r"Rank (\d{1,7}) is running collective: CollectiveFingerPrint\((?:SequenceNumber=(\d{1,18})[, "
    r"]{0,2})?OpType=(\w{1,64})(?=[,)])"
    r"(?:, TensorShape=\[([\d, ]{0,256})\])?"
)
_GLOO: Final = re.compile(
    r"gloo/transport/[\w/.]{1,64}:\d{1,6}\] ?((?:Timed out waiting (\d{1,12})ms for (\w{1,16}) operation to complete"
    r"|Connection closed by peer \[([^\]]{1,64})\]:\d{1,6}|Read error \[([^\]]{1,64})\]:\d{1,6}: .{0,64}"
    r"|[A-Z].{0,160}))"
)


class LibraryErrors:
    """What the errors of a log say.

    Attributes:
        gloo: Texts of Gloo's errors, each once, with whose it is where that is known.
        most_rank: The highest rank that is mentioned, -1 if none is.
    """

    def __init__(self) -> None:
        self.gloo: dict[str, None] = {}
        self.most_rank = -1
        self._absent: dict[int, float] = {}
        self._came: set[int] = set()
        self._prints: dict[int, tuple[int, str, str, float]] = {}

    def see(self, line: str, who: Who, at_s: float = UNTIMED) -> None:
        """A line that may be such an error."""
        if found := _ABSENT.search(line):
            for rank in numbers_in(found.group(1)):
                self._absent.setdefault(rank, at_s)
                self.most_rank = max(self.most_rank, rank)
        elif found := _CAME.search(line):
            rank = int(found.group(1))
            if rank < MOST_RANK and who.rank in (None, rank):
                self._came.add(rank)
                self.most_rank = max(self.most_rank, rank)
        elif "Detected mismatch between" in line:
            self._see_prints(line, who, at_s)
        if (found := _GLOO.search(line)) and len(self.gloo) < MOST_TEXTS:
            whose = f"rank {who.rank}: " if who.rank is not None else ""
            self.gloo.setdefault(f"{whose}{_in_words(found)}", None)

    def _see_prints(self, line: str, who: Who, at_s: float) -> None:
        found = [one.groups() for one in _PRINTS.finditer(line)][:2]
        if not found or (who.rank is not None and int(found[0][0]) != who.rank):
            return  # numbers of a group, and not of the job
        for rank, seq, op, shape in found:
            if int(rank) < MOST_RANK:
                self.most_rank = max(self.most_rank, int(rank))
                self._prints.setdefault(int(rank), (int(seq or 1), op.lower(), shape or "", at_s))

    def reports(self) -> list[Report]:
        """Who is absent."""
        if not self._absent:
            return []
        return [
            Report(
                Told.ABSENT, tuple(sorted(self._absent)), "monitoredBarrier", tuple(sorted(self._came)),
                int(Kind.MONITORED_BARRIER), at_s=max(self._absent.values()),
            )
        ]  # fmt: skip

    def standings(self) -> list[Standing]:
        """What ranks called that does not match, as operations of one round of the group of all."""
        return [
            Standing(
                rank,
                "0",
                OF_ALL[0],
                rank,
                seq,
                seq - 1,
                TimedOut(seq, op, _size(shape) if shape else -1, -1, at_s),
                at_s,
            )
            for rank, (seq, op, shape, at_s) in self._prints.items()
        ]


def _size(shape: str) -> int:
    size = 1
    for number in numbers_in(shape, 1 << 40):
        size *= max(number, 1)
    return min(size, 1 << 60)


def _in_words(found: re.Match[str]) -> str:
    text, timeout_ms, op, closed, reset = found.groups()
    if timeout_ms:
        return f"a {op} of Gloo timed out after {int(timeout_ms) / 1000:g} s: its peer has not answered"
    if closed or reset:
        return f"the peer at {for_people(closed or reset, 64)} closed its connection of Gloo, or its process ended"
    return f"Gloo reports: {for_people(text, 160)}"
