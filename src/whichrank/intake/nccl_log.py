"""What NCCL and RCCL log (NCCL_DEBUG=WARN or INFO): who is where, what was enqueued, what went wrong first.

With NCCL_DEBUG_SUBSYS=COLL each collective that is enqueued has a line with its number in the communicator. Which rank
wrote it is known from the line in which its process joined that communicator. Numbers are compared between the ranks of
one communicator: who has enqueued less than all others has not come.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from whichrank.intake.counted import Counted, dump_of
from whichrank.intake.counts_in_doubt import are_comparable
from whichrank.intake.facts import Fact
from whichrank.intake.flight_dump import NOT_KNOWN, Dump, Group
from whichrank.intake.late_requests import HINT as OF_REQUESTS
from whichrank.intake.late_requests import LateRequests, Process
from whichrank.intake.lines.hints import has_any
from whichrank.intake.lines.prefixes import MOST_RANK
from whichrank.model.kinds import Kind
from whichrank.model.reports import Report

MOST_WARNINGS: Final = 3
"""Of a process: the first ones, since the others are of what followed."""
MOST_PROCESSES: Final = 1 << 20
LEAST_COMPARED: Final = 2
"""Members of a communicator, to be compared."""
KEPT: Final = 64
"""Collectives of a rank on a communicator, the last ones."""
_NCCL: Final = re.compile(
    r"(?<![\w.:-])([\w.-]{1,255}):(\d{1,10}):\d{1,10} \[(\d{1,4})\] .{0,160}?NCCL (INFO|WARN) (.*)$"
)
_RANK: Final = re.compile(r"\brank (\d{1,9}) nranks (\d{1,9})\b")
_INIT: Final = re.compile(r"\bcomm (0x[0-9a-f]{1,16})\b.{0,40}?\brank (\d{1,9}) nranks (\d{1,9})\b")
_BUS: Final = re.compile(r"\bbusId ([0-9a-fA-F]{1,16})\b")
_COMM_ID: Final = re.compile(r"\bcommId (0x[0-9a-f]{1,20})\b")
_COLL: Final = re.compile(
    rb"([\w.-]{1,255}):(\d{1,10}):\d{1,10} \[\d{1,4}\] NCCL INFO (\w{1,64}): opCount ([0-9a-f]{1,16}) sendbuff "
    rb"\S{1,24} "
    rb"recvbuff \S{1,24} count (\d{1,18}) datatype (\d{1,3}) op \d{1,6} root \d{1,9} comm (\S{1,24}) "
    rb"\[nranks=(\d{1,7})\]"
)
_WARNING: Final = re.compile(
    rb"([\w.-]{1,255}):(\d{1,10}):\d{1,10} \[\d{1,4}\] (?:[\w./-]{1,96}:\d{1,6} )?NCCL WARN ([^\"\\&\r\x1b\x9b\[]*)\Z"
)
"""A whole line without what may wrap it and without brackets, in which another writer might begin."""
_NO_WARNING: Final = (b"WQE ", b"ast enqueued", b"Watchdog caught", b"srun: ", b"slurmstepd: ", b"NVRM: ")
_MORE: Final = re.compile(rb"NCCL |[A-Z]\d{3,4} \d\d:\d\d:")
"""What it says of others or of a time."""
_KINDS: Final = {
    "AllReduce": Kind.ALL_REDUCE, "Broadcast": Kind.BROADCAST, "Bcast": Kind.BROADCAST, "Reduce": Kind.REDUCE,
    "AllGather": Kind.ALL_GATHER, "ReduceScatter": Kind.REDUCE_SCATTER,
}  # fmt: skip
EQUAL: Final = (
    "NCCL's lines say what was enqueued and not what has ended, and all ranks have enqueued equally many, as far as no "
    "line is lost"
)


class Joined(NamedTuple):
    """A process in a communicator: its rank there, of how many, and the communicator's id, "" if not said."""

    rank: int
    size: int
    comm_id: str


@dataclass
class Enqueued:
    """What a process has enqueued on a communicator: how many, and the last ones."""

    size: int
    count: int = 0
    last: deque[tuple[int, str, int]] = field(default_factory=lambda: deque(maxlen=KEPT))


class NcclLog:
    """Such lines of a log."""

    def __init__(self) -> None:
        self._rank: dict[Process, tuple[int, int]] = {}
        self._bus: dict[Process, str] = {}
        self._warnings: dict[Process, list[str]] = {}
        self._joined: dict[tuple[Process, str], Joined] = {}
        self._enqueued: dict[tuple[Process, str], Enqueued] = {}
        self._latest: Process = "", 0
        self._requests = LateRequests()

    def see(self, line: str) -> None:
        """A line of a process."""
        found = _NCCL.search(line)
        if not found or len(self._rank) > MOST_PROCESSES:
            return
        host, pid, _, level, text = found.groups()
        process = host, int(pid)
        if ": opCount " in text:
            self.see_collective(line.encode())
        elif OF_REQUESTS in text and self._requests.see(process, text):
            return
        elif level == "WARN":
            warnings = self._warnings.setdefault(process, [])
            if len(warnings) < MOST_WARNINGS:
                warnings.append(f"NCCL warns: {text[:200]}")
        elif said := _RANK.search(text):
            self._see_rank(process, text, int(said.group(1)), int(said.group(2)))

    def _see_rank(self, process: Process, text: str, rank: int, size: int) -> None:
        if not rank < size <= MOST_RANK:
            return
        if size > self._rank.get(process, (0, 0))[1]:
            self._rank[process] = rank, size
        if bus := _BUS.search(text):
            self._bus[process] = bus.group(1)
        if init := _INIT.search(text):
            comm_id = _COMM_ID.search(text)
            self._joined[process, init.group(1)] = Joined(rank, size, comm_id.group(1) if comm_id else "")

    def take(self, line: bytes) -> bool:
        """A line of a kind that comes in millions, without a look at anything else in it; whether it was one."""
        if b": opCount " in line:
            return self.see_collective(line)
        return b"NCCL WARN " in line and self._is_one_more_warning(line)

    def _is_one_more_warning(self, line: bytes) -> bool:
        """Is it nothing but a warning of a process of which enough are known?"""
        found = _WARNING.match(line)
        if found is None or has_any(line, _NO_WARNING):
            return False
        known = self._warnings.get((found[1].decode(), int(found[2])), ())
        return len(known) >= MOST_WARNINGS and not _MORE.search(line, found.start(3))

    def see_collective(self, line: bytes) -> bool:
        """A line of a collective, without a look at anything else in it; whether it is one."""
        if b"\x1b" in line or line.count(b"NCCL INFO") != 1 or not (found := _COLL.search(line)):
            return False
        host, pid, name, count, elements, _, comm, size = found.groups()
        place = (host.decode(), int(pid)), comm.decode()
        one = self._enqueued.get(place)
        if one is None:
            one = self._enqueued[place] = Enqueued(int(size))
        number = int(count, 16) + 1
        one.count = max(one.count, number)
        one.last.append((number, name.decode(), int(elements)))
        self._latest = place[0]
        return True

    # ---- what it comes to ----------------------------------------------------------------------------------------

    def facts(self) -> list[Fact]:
        """Of the processes that said their rank in the largest communicator."""
        most = max((size for _, size in self._rank.values()), default=0)
        known = {  # a rank that is started again is another process
            rank: Fact(
                rank, host, pid, words=tuple(self._warnings.get((host, pid), ())), world_size=size,
                bus=self._bus.get((host, pid), ""),
            )
            for (host, pid), (rank, size) in self._rank.items()
            if size == most
        }  # fmt: skip
        return list(known.values())

    def warnings(self) -> list[str]:
        """Of processes whose rank is not known."""
        return [
            f"{host}:{pid}: {text}"
            for (host, pid), texts in self._warnings.items()
            if (host, pid) not in self._rank
            for text in texts[:1]
        ]

    def dumps(self) -> dict[int, Dump]:
        """As if each rank had dumped the collectives that it has enqueued; complete are those that all have enqueued.

        Only communicators of which each member has said its rank are read; their other members are not known. A log may
        be cut. So a rank is not believed to be behind if it is by one operation only, or if the last line is its own.
        """
        most = max((size for _, size in self._rank.values()), default=0)
        rank_of = {process: rank for process, (rank, size) in self._rank.items() if size == most}
        comms: dict[str, dict[int, tuple[int, Enqueued]]] = {}
        for (process, comm), one in self._enqueued.items():
            joined = self._joined.get((process, comm))
            if joined is None or process not in rank_of:
                continue
            name = joined.comm_id or f"{comm if joined.size == 1 else 'all'} of {joined.size}"
            comms.setdefault(name, {})[joined.rank] = rank_of[process], one
        members, least, level = dict[str, tuple[int, ...]](), dict[str, int](), dict[str, int]()
        for (process, comm), joined in self._joined.items():  # who has joined and enqueued nothing is behind all others
            name = joined.comm_id or f"{comm if joined.size == 1 else 'all'} of {joined.size}"
            if name in comms and process in rank_of:
                comms[name].setdefault(joined.rank, (rank_of[process], Enqueued(joined.size)))
        for name, of in comms.items():
            size = next(iter(of.values()))[1].size
            known = tuple(of[place][0] for place in sorted(of))
            members[name] = known if len(of) == size else (*known, NOT_KNOWN)
            least[name] = min(one.count for _, one in of.values())
            if not are_comparable([[number for number, _, _ in one.last] for _, one in of.values()]):
                level[name] = least[name]
            elif (doubtful := self._may_be_cut(of, rank_of)) is not None:
                del of[doubtful]
        found: dict[int, tuple[list[Group], list[Counted]]] = {}
        for name, of in comms.items():
            for rank, one in of.values():
                groups, rows = found.setdefault(rank, ([], []))
                groups.append(Group(name, "", members[name]))
                rows += [
                    Counted(len(groups) - 1, number, number <= least[name], int(_KINDS.get(kind, Kind.OTHER)), elements)
                    for number, kind, elements in _last_of_each(one)
                    if kind not in ("Send", "Recv") and number <= level.get(name, number)
                ]
        return {rank: dump_of("nccl_log", rank, groups, rows) for rank, (groups, rows) in sorted(found.items())}

    def _may_be_cut(self, of: Mapping[int, tuple[int, Enqueued]], rank_of: Mapping[Process, int]) -> int | None:
        """The place of the one member that is behind all others, if the end of the log may be why."""
        counts = sorted((one.count, place) for place, (_, one) in of.items())
        if len(counts) < LEAST_COMPARED or counts[0][0] == counts[1][0]:
            return None
        place = counts[0][1]
        is_last = of[place][0] == rank_of.get(self._latest)
        return place if is_last or counts[1][0] - counts[0][0] == 1 else None

    def reports(self) -> list[Report]:
        """Network requests that are late."""
        return self._requests.reports({process: rank for process, (rank, _) in self._rank.items()})


def _last_of_each(one: Enqueued) -> list[tuple[int, str, int]]:
    """The last line of each number, in order: operations of a group call may share one."""
    return sorted({number: (number, kind, elements) for number, kind, elements in one.last}.values())
