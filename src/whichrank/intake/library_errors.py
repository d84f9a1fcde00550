"""Errors in which a library says itself who has not come, what does not match, or that a peer is gone.

`monitoredBarrier` lists who is absent. With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares what ranks call and says
which two differ. Gloo says that a message has not come or that a peer closed, and names an address and no rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from whichrank.intake.flight_dump import OF_ALL
from whichrank.intake.launchers import numbers_in
from whichrank.intake.lines.hints import has_any
from whichrank.intake.lines.prefixes import MOST_RANK, Who
from whichrank.intake.log_time import UNTIMED
from whichrank.intake.plain_text import for_people
from whichrank.intake.standings import Standing, TimedOut
from whichrank.model.kinds import Kind
from whichrank.model.reports import Report, Told

MOST_TEXTS: Final = 16
STUCK: Final = ("watchdog got stuck", "Heartbeat monitor timed out")
_ABSENT: Final = re.compile(r"Ranks? ([\d, ]{1,65536}) failed to pass monitoredBarrier in (\d{1,12}) ms")
_BARRIER: Final = re.compile(
    r"in store[- ]based barrier on rank:? (\d{1,7}), for key: store_based_barrier_key:(\d{1,9}) "
    r"\(world_size=(\d{1,7}), (?:worker_count|num_workers_joined)=(\d{1,7}),"
)
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
        most_rank: The highest rank that is mentioned, -1 if none is.
        world_size: Ranks of the job, as the store has said it; 0: it has not.
    """

    def __init__(self) -> None:
        self._said: dict[str, None] = {}
        self.most_rank = -1
        self._absent: dict[int, float] = {}
        self._came: set[int] = set()
        self._prints: dict[int, tuple[int, str, str, float]] = {}
        self._barrier: dict[int, tuple[int, float]] = {}
        self.world_size = 0
        self._stuck: set[int] = set()

    def see(self, line: str, who: Who, at_s: float = UNTIMED) -> None:
        """A line that may be such an error."""
        if (found := _ABSENT.search(line)) and who.rank:
            self._say(
                f"rank {who.rank} reports that number {found.group(1)[:64]} of its group has not come to "
                "monitoredBarrier; no line says which rank of the job that is"
            )
        elif found:
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
        elif has_any(line, STUCK) and who.rank is not None:
            self._stuck.add(who.rank)
            self.most_rank = max(self.most_rank, who.rank)
        elif found := _BARRIER.search(line):
            self._see_barrier(*map(int, found.groups()), who=who, at_s=at_s)
        if found := _GLOO.search(line):
            whose = f"rank {who.rank}: " if who.rank is not None else ""
            self._say(f"{whose}{_in_words(found)}")

    def _say(self, text: str) -> None:
        if len(self._said) < MOST_TEXTS:
            self._said.setdefault(text, None)

    def _see_barrier(self, rank: int, key: int, size: int, joined: int, *, who: Who, at_s: float) -> None:
        """A rank has waited for all others as the job began. Only the first such barrier is surely of all ranks."""
        if key != 1 or who.rank not in (None, rank) or not rank < size <= MOST_RANK:
            return
        self.world_size = max(self.world_size, size)
        self.most_rank = max(self.most_rank, size - 1)
        self._barrier[rank] = max(joined, self._barrier.get(rank, (0, at_s))[0]), at_s

    def _see_prints(self, line: str, who: Who, at_s: float) -> None:
        found = [one.groups() for one in _PRINTS.finditer(line)][:2]
        if not found or (who.rank is not None and int(found[0][0]) != who.rank):
            return  # numbers of a group, and not of the job
        for rank, seq, op, shape in found:
            if int(rank) < MOST_RANK:
                self.most_rank = max(self.most_rank, int(rank))
                self._prints.setdefault(int(rank), (int(seq or 1), op.lower(), shape or "", at_s))

    def remarks(self) -> list[str]:
        """What names nobody, for people."""
        said = [*self._said]
        if self._stuck:
            said.append(f"PyTorch's watchdog got stuck on {_those(self._stuck)}: a call into CUDA or NCCL blocked it")
        joined = self._joined()
        if not 0 < joined < self.world_size or self._absent_at_begin():
            return said
        missing = self.world_size - joined
        whose = f"{missing} rank had" if missing == 1 else f"{missing} ranks had"
        return [*said, f"{whose} not come when the job began: {joined} of {self.world_size} ranks were there"]

    def _joined(self) -> int:
        """How many ranks the store had counted as the job began."""
        return max((count for count, _ in self._barrier.values()), default=0)

    def _absent_at_begin(self) -> tuple[int, ...]:
        """Who had not come when the job began: those who did not write, if as many wrote as the store had counted."""
        is_known = 0 < self._joined() == len(self._barrier) < self.world_size
        return tuple(rank for rank in range(self.world_size) if rank not in self._barrier) if is_known else ()

    def reports(self) -> list[Report]:
        """Who is absent."""
        reports = []
        if absent := self._absent_at_begin():
            at_s = max(at_s for _, at_s in self._barrier.values())
            waiting = tuple(sorted(self._barrier))
            reports = [Report(Told.ABSENT, absent, "the store", waiting, int(Kind.BARRIER), at_s=at_s)]
        if self._absent:
            absent, came, at_s = tuple(sorted(self._absent)), tuple(sorted(self._came)), max(self._absent.values())
            barrier = int(Kind.MONITORED_BARRIER)
            reports.append(Report(Told.ABSENT, absent, "monitoredBarrier", came, barrier, at_s=at_s))
        return reports

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


def _those(ranks: Iterable[int]) -> str:
    first, *more = sorted(ranks)
    listed = [first, *more][:MOST_TEXTS]
    rest = f" and {len(more) + 1 - len(listed)} more" if len(listed) <= len(more) else ""
    return f"ranks {', '.join(map(str, listed))}{rest}" if more else f"rank {first}"


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
