"""Logs, read for what they say of ranks: those of launchers, of torch's watchdog, of NCCL, of Gloo, of the kernel.

`lines` takes a text apart into pieces of one writer each, `grammar` has the words of all writers, and each writer has a
reader of its own here, which sees the pieces in their order and says at the end what they come to. A line with which a
launcher starts the job again begins a new part of the log, of which all readers begin anew: see `attempts`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import IO, Final

from whichrank.errors import FormatError
from whichrank.intake.desync import HINTS as OF_DESYNC
from whichrank.intake.desync import Desync
from whichrank.intake.ends import HINTS as OF_ENDS
from whichrank.intake.ends import End, Ends
from whichrank.intake.facts import Fact, Killed, Xid, without_repeats
from whichrank.intake.flight_dump import Dump
from whichrank.intake.grammar import HINTS
from whichrank.intake.kernel_log import KernelLog
from whichrank.intake.launchers import Launchers
from whichrank.intake.library_errors import STUCK, LibraryErrors
from whichrank.intake.lines.hints import has_any
from whichrank.intake.lines.pieces import MOST_KNOWN, Piece, pieces
from whichrank.intake.lines.prefixes import Who
from whichrank.intake.log_time import UNTIMED, iso_time_s, syslog_time_s, torch_time_s
from whichrank.intake.nccl_log import NcclLog
from whichrank.intake.node_errors import HINTS as OF_NODES
from whichrank.intake.node_errors import NodeError, NodeErrors
from whichrank.intake.ras import Ras
from whichrank.intake.ras_in_log import HINT as OF_RAS
from whichrank.intake.ras_in_log import RasInLog
from whichrank.intake.restarts import HINTS as OF_RESTARTS
from whichrank.intake.restarts import Restarts
from whichrank.intake.standings import Standing
from whichrank.intake.watchdog import HINTS as OF_WATCHDOG
from whichrank.intake.watchdog import Watchdog
from whichrank.model.reports import Report

MOST_FACTS: Final = 1 << 20
"""Of ranks, by launchers, that differ in more than their time."""
MOST_PARTS: Final = 1024
"""Of a log that say something; what is said behind the last of them is of that one."""
_OF_LIBRARIES: Final = ("monitoredBarrier", "Detected mismatch between", "gloo/transport", *STUCK)
_TRACEBACK: Final = {b"]: Traceback (most recent call last)": 60, b"Exception ignored in": 0}
_OF_BEGIN: Final = ("store based barrier", "store-based barrier")


@dataclass
class Log:
    """What a log says.

    Attributes:
        facts: Of ranks.
        xids: Of devices.
        standings: How far ranks are on their groups, by torch's watchdog.
        most_rank: The highest rank that is mentioned, -1 if none is.
        world_size: Ranks of the job, as a launcher says it; 0: none does.
        restarts_s: When a launcher said that it starts the job again, in all parts, see `log_time`.
        reports: What libraries and drivers say of ranks.
        killed: Processes that were killed for lack of memory.
        counted: By rank, what it has enqueued by NCCL's log.
        warnings: Of NCCL, of processes whose rank is not known.
        node_errors: Of what the ranks of a node share.
        corrupted: Processes that were ended since their memory is damaged.
        ends: Of processes and pods, by launchers that do not name ranks.
        places: By rank, host and pid as prefixes and launchers say it.
        remarks: What names nobody, for people.
        polls: Answers of RAS in the middle of the log.
        before: What the log says before the last line that starts the job again, by part, those that say something.
        begun_s: When its last part began, by the launcher; `UNTIMED` if that is not known or there is one part only.
        not_kept: Lines of the watchdog in its last part that say something and are not kept, and how many there were.
    """

    facts: list[Fact] = field(default_factory=list)
    xids: list[Xid] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    most_rank: int = -1
    restarts_s: list[float] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    killed: list[Killed] = field(default_factory=list)
    counted: dict[int, Dump] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    node_errors: list[NodeError] = field(default_factory=list)
    corrupted: list[Killed] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    polls: list[Ras] = field(default_factory=list)
    before: list[Log] = field(default_factory=list)
    begun_s: float = UNTIMED
    world_size: int = 0
    not_kept: tuple[int, int] = 0, 0

    @property
    def left_out(self) -> str:
        """What all parts say and is not kept, in a sentence; "" if all is."""
        count, seen = (sum(numbers) for numbers in zip(*(part.not_kept for part in (*self.before, self)), strict=True))
        if not count:
            return ""
        return (
            f"{count:,} of {seen:,} lines of PyTorch's watchdog were left out: they say what lies between the first "
            "and the latest line of a rank on a group"
        )

    @property
    def last_says_something(self) -> bool:
        """Does its last part say anything of ranks, processes or devices?"""
        said = self.facts, self.xids, self.standings, self.reports, self.killed, self.counted, self.warnings
        return any(said) or any((self.node_errors, self.corrupted, self.ends, self.remarks, self.polls))

    @property
    def says_something(self) -> bool:
        """Does any part of it?"""
        return bool(self.before) or self.last_says_something


def read_log(stream: IO[bytes], *, is_beside_ras: bool = False) -> Log:
    """What a text says of ranks, processes and devices.

    Args:
        stream: UTF-8, see `lines.encodings.as_utf8`.
        is_beside_ras: Answers of RAS in it were read already: who has found them at its begin has read them all.

    Raises:
        FormatError: It says nothing of them, or is too long.
    """
    reader = _Reader()
    hints = HINTS | _TRACEBACK
    if is_beside_ras:
        hints = {hint: after for hint, after in hints.items() if hint != OF_RAS.encode()}
    for piece in pieces(stream, hints, reader.take):
        reader.see(piece)
    log = reader.log()
    if not log.says_something:
        raise FormatError("it says nothing of ranks")
    return log


class _Reader:
    """The readers of all writers, of one log."""

    def __init__(self) -> None:
        self._before: list[Log] = []
        self._restarts = Restarts()
        self._at_s, self._offset_s, self._known = UNTIMED, 0.0, 0
        self._most_facts = MOST_FACTS
        self._begun_s = UNTIMED
        self._of_watchdog: set[str] = set()  # bodies of lines in which nothing stands but words of the watchdog
        self._restarts_before, self._is_begun_by_event = 0, False
        self._begin()

    def _begin(self) -> None:
        """A part of the log, of which nothing is known yet."""
        self._nccl, self._watchdog, self._desync = NcclLog(), Watchdog(), Desync()
        self._errors, self._launchers, self._kernel = LibraryErrors(), Launchers(), KernelLog()
        self._nodes, self._ends, self._ras = NodeErrors(), Ends(), RasInLog()
        self._places: dict[int, tuple[str, int]] = {}

    def take(self, line: bytes) -> bool:
        """A line of a kind that comes in millions, as it is; whether it was one."""
        return self._nccl.take(line)

    def see(self, piece: Piece) -> None:
        """A piece goes to whom its words belong to."""
        text, who = piece.text, piece.who
        self._note_time(torch_time_s(text), iso_time_s(who.time) if who.time else UNTIMED)
        at_s = self._at_s
        if who.rank is not None and (who.host or who.pid):
            self._places[who.rank] = who.host, who.pid
        self._ras.see(text)
        if piece.key in self._of_watchdog:
            self._watchdog.see(piece.body, who.rank, at_s, is_cut=piece.is_cut)
        elif has_any(text, OF_WATCHDOG):
            self._watchdog.see(piece.body or text, who.rank, at_s, is_cut=piece.is_cut)
            self._see_rest_of_line(piece, at_s)
        elif " NCCL INFO " in text or " NCCL WARN " in text:
            self._nccl.see(text)
        elif has_any(text, _OF_LIBRARIES):
            self._errors.see(text, who, at_s)
        elif has_any(text, _OF_BEGIN):
            self._errors.see(text, who, at_s)
            self._launchers.see(text, who, at_s)
        elif "NVRM: Xid" in text or "illed process " in text:
            self._kernel.see(text, who.host, self._kernel_s(who))
        elif has_any(text, OF_NODES):
            self._nodes.see(text, who.host, self._kernel_s(who))
        elif has_any(text, OF_ENDS) and self._ends.see(text, who, at_s):
            return
        elif has_any(text, OF_RESTARTS):
            if self._restarts.see(text, at_s):
                self._end_part()
        elif not self._launchers.see(text, who, at_s):
            self._desync.see(text, at_s)
        if self._known + len(self._launchers.facts) > self._most_facts:
            self._launchers.facts = without_repeats(self._launchers.facts)
            known = self._known + len(self._launchers.facts)
            if known > MOST_FACTS:
                raise FormatError("it says too much of ranks to be a log")
            self._most_facts = MOST_FACTS // 2 + known

    def _see_rest_of_line(self, piece: Piece, at_s: float) -> None:
        """What stands behind words of the watchdog, where a text has lost its ends of lines."""
        is_desync, is_restart = has_any(piece.text, OF_DESYNC), has_any(piece.text, OF_RESTARTS)
        if is_desync:
            self._desync.see(piece.text, at_s)
        if is_restart and self._restarts.see(piece.text, at_s):
            self._end_part()
        if piece.body and not is_desync and not is_restart:
            if len(self._of_watchdog) >= MOST_KNOWN:
                self._of_watchdog.clear()
            self._of_watchdog.add(piece.key)

    def _note_time(self, torch_s: float, collected_s: float) -> None:
        """A line's own time, and when it was collected: that clock may be of another time zone."""
        if torch_s >= 0:
            self._at_s = torch_s
            if collected_s >= 0:
                self._offset_s = torch_s - collected_s
        elif collected_s >= 0:
            self._at_s = collected_s + self._offset_s

    def _kernel_s(self, who: Who) -> float:
        """When a line of a kernel's log was written, by syslog: that clock is not held against those of ranks."""
        at_s = syslog_time_s(who.time)
        return at_s if at_s >= 0 else self._at_s

    def _end_part(self) -> None:
        """What was said so far is of an attempt that is over."""
        part = self._part()
        is_event = self._restarts.is_event
        if not part.last_says_something:
            self._is_begun_by_event &= is_event
        elif len(self._before) < MOST_PARTS:
            self._restarts_before, self._is_begun_by_event = len(self._restarts.at_s) - 1, is_event
            self._known += len(part.facts) + len(part.standings)
            self._before.append(part)
            self._begun_s = self._restarts.at_s[-1]
            self._begin()

    def log(self) -> Log:
        """What they all say. An event behind which nothing is said began no other attempt, see `restarts`."""
        last, before, restarts_s = self._part(), self._before, self._restarts.at_s
        if self._is_begun_by_event and not last.last_says_something:
            *before, last = before
            restarts_s = restarts_s[: self._restarts_before]
        return replace(last, restarts_s=restarts_s, before=before)

    def _part(self) -> Log:
        standings = self._watchdog.reported()
        for more in (self._errors.standings(), self._desync.standings(set())):
            known = {one.rank for one in standings}
            standings = [*standings, *(one for one in more if one.rank not in known)]
        ended = self._launchers.ended_of_themselves() if self._ends.was_cancelled else self._launchers.facts
        facts = [*ended, *self._nccl.facts()]
        reports = [*self._errors.reports(), *self._nccl.reports()]
        of_all = self._watchdog.most_rank, self._errors.most_rank, self._ends.most_rank
        mentioned = (*of_all, *(one.rank for one in standings))
        return Log(
            facts, self._kernel.xids, standings, max(mentioned), [], reports,
            self._kernel.killed, self._nccl.dumps(), self._nccl.warnings(), list(self._nodes.errors),
            self._nodes.corrupted, self._ends.ends, self._places | self._ends.places,
            [*self._errors.remarks(), *self._ends.remarks, *self._watchdog.remarks],
            list(self._ras.polls()), begun_s=self._begun_s,
            world_size=max(self._ends.world_size, self._errors.world_size), not_kept=self._watchdog.not_kept,
        )  # fmt: skip
