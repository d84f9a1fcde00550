"""Logs, read for what they say of ranks: those of launchers, of torch's watchdog, of NCCL, of Gloo, of the kernel.

`lines` takes a text apart into pieces of one writer each, `grammar` has the words of all writers, and each writer has a
reader of its own here, which sees the pieces in their order and says at the end what they come to. Pieces of one log
share its parts: a line with which a launcher starts the job again begins the next one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import IO, Final

from whichrank.errors import FormatError
from whichrank.intake.desync import Desync
from whichrank.intake.facts import Fact, Xid
from whichrank.intake.flight_dump import Dump
from whichrank.intake.grammar import HINTS
from whichrank.intake.kernel_log import KernelLog
from whichrank.intake.launchers import Launchers
from whichrank.intake.library_errors import LibraryErrors
from whichrank.intake.lines.pieces import Piece, pieces
from whichrank.intake.log_time import UNTIMED, iso_time_s, torch_time_s
from whichrank.intake.nccl_log import NcclLog
from whichrank.intake.watchdog import HINTS as OF_WATCHDOG
from whichrank.intake.watchdog import Standing, Watchdog
from whichrank.model.reports import Report

MOST_FACTS: Final = 1 << 20
_RESTART: Final = re.compile(
    r"will restart worker group|\b(?:TORCHELASTIC_RESTART_COUNT|restart_count) ?[=:] ?([1-9]\d{0,5})\b"
)
"""torchrun begins another attempt, or something says which one it is."""
_OF_LIBRARIES: Final = ("monitoredBarrier", "Detected mismatch between", "gloo/transport")
_TRACEBACK: Final = {b"]: Traceback (most recent call last)": 60}


@dataclass
class Log:
    """What a log says.

    Attributes:
        facts: Of ranks.
        xids: Of devices.
        standings: How far ranks are on their groups, by torch's watchdog.
        most_rank: The highest rank that is mentioned, -1 if none is.
        restarts_s: When its launcher said that it starts the workers again, see `log_time`.
        reports: What libraries and drivers say of ranks, each with its part of the log.
        gloo: Errors of Gloo, in words.
        killed: Processes that were killed for lack of memory.
        counted: By rank, what it has enqueued by NCCL's log.
        warnings: Of NCCL, of processes whose rank is not known.
    """

    facts: list[Fact] = field(default_factory=list)
    xids: list[Xid] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    most_rank: int = -1
    restarts_s: list[float] = field(default_factory=list)
    reports: list[tuple[Report, int]] = field(default_factory=list)
    gloo: list[str] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    counted: dict[int, Dump] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def says_something(self) -> bool:
        """Does it say anything of ranks, processes or devices?"""
        said = self.facts, self.xids, self.standings, self.reports, self.gloo, self.killed, self.counted, self.warnings
        return any(said)


def read_log(stream: IO[bytes]) -> Log:
    """What a text says of ranks, processes and devices.

    Args:
        stream: UTF-8, see `lines.encodings.as_utf8`.

    Raises:
        FormatError: It says nothing of them, or is too long.
    """
    reader = _Reader()
    for piece in pieces(stream, HINTS | _TRACEBACK, reader.nccl.see_collective):
        reader.see(piece)
    log = reader.log()
    if not log.says_something:
        raise FormatError("it says nothing of ranks")
    return log


class _Reader:
    """The readers of all writers, of one log."""

    def __init__(self) -> None:
        self.nccl, self._watchdog, self._desync = NcclLog(), Watchdog(), Desync()
        self._errors, self._launchers, self._kernel = LibraryErrors(), Launchers(), KernelLog()
        self._restarts_s: list[float] = []
        self._at_s, self._attempt, self._offset_s = UNTIMED, 0, 0.0

    def see(self, piece: Piece) -> None:
        """A piece goes to whom its words belong to."""
        text, who = piece.text, piece.who
        self._note_time(torch_time_s(text), iso_time_s(who.time))
        at_s, part = self._at_s, self._watchdog.part
        if any(hint in text for hint in OF_WATCHDOG):
            self._watchdog.see(text, who, at_s, is_cut=piece.is_cut)
        elif " NCCL INFO " in text or " NCCL WARN " in text:
            self.nccl.see(text)
        elif any(word in text for word in _OF_LIBRARIES):
            self._errors.see(text, who, at_s, part)
        elif "NVRM: Xid" in text or "illed process " in text:
            self._kernel.see(text, who.host, at_s, part)
        elif found := _RESTART.search(text):
            number = int(found.group(1) or self._attempt + 1)
            if number > self._attempt:
                self._attempt, self._watchdog.part = number, part + 1
                self._restarts_s.append(at_s)
        elif not self._launchers.see(text, who, at_s, part):
            self._desync.see(text, at_s, part)
        if len(self._launchers.facts) + len(self._watchdog.standings) > MOST_FACTS:
            raise FormatError("it says too much of ranks to be a log")

    def _note_time(self, torch_s: float, collected_s: float) -> None:
        """A line's own time, and when it was collected: that clock may be of another time zone."""
        if torch_s >= 0:
            self._at_s = torch_s
            if collected_s >= 0:
                self._offset_s = torch_s - collected_s
        elif collected_s >= 0:
            self._at_s = collected_s + self._offset_s

    def log(self) -> Log:
        """What they all say."""
        last = self._watchdog.part
        standings = self._watchdog.reported()
        for more in (self._errors.standings(), self._desync.standings(set())):
            known = {(one.rank, one.part) for one in standings}
            standings = [*standings, *(one for one in more if (one.rank, one.part) not in known)]
        facts = [*self._launchers.facts, *(replace(fact, part=last) for fact in self.nccl.facts())]
        reports = [*self._errors.reports(), *((report, last) for report in self.nccl.reports())]
        mentioned = (self._watchdog.most_rank, self._errors.most_rank, *(one.rank for one in standings))
        return Log(
            facts, self._kernel.xids, standings, max(mentioned), self._restarts_s, reports, list(self._errors.gloo),
            self._kernel.killed, self.nccl.dumps(), self.nccl.warnings(),
        )  # fmt: skip
