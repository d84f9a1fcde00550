"""Logs of Megatrace: a line for each operation that a host has enqueued, with its time, kind and count.

A line begins with `[save_count N]`. That number counts how often the process has written to its file, so all lines of
one write share it: it orders writes of one file, and says nothing about operations or other ranks. `opCount` counts the
operations of a stream or of a communicator, depending on the version; in a group call it stays.

No line says when an operation has ended. But no member of a group can have ended what another has not enqueued. So of
each group the operations that all members have enqueued count as complete, and the later ones as under way.

Groups are told apart by their hash. Older logs have no hash, only a stream pointer, which differs between processes.
Then ranks are compared only if nothing speaks against one group of all ranks: no sends and receives, and each log is
the beginning of the longest one. Even so nobody is named, since a rank may do less by design. Else nothing is reported
of operations, and `incomparable` says why.

A process that stands still writes all that it has after some seconds. So a rank is not believed if its log begins after
the first write, or if its counters have gaps: lines are missing. If its log ends at an earlier write than those of the
others, the file may have been cut, or the process was stopped: it may be behind, but it is not named for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import IO, Final, NamedTuple

from whichrank.errors import FormatError
from whichrank.intake.counted import Counted, dump_of
from whichrank.intake.flight_dump import NOT_KNOWN, Dump, Group
from whichrank.model.kinds import Kind

HINT: Final = b"[save_count "
MOST_OPS: Final = 1 << 24
MOST_RANK: Final = 1 << 20
_LINE: Final = re.compile(
    rb"\[save_count (\d{1,18})\] \[(\d{1,18})\.(\d{1,18})\] \[Rank (\d{1,9})\] Fun (\w{1,64}) Data (\d{1,18}) "
    rb"stream (\S{1,64}) opCount (\d{1,18})"
    rb"(?:\s+groupHash (-?\w+))?"
)
FIRST_WRITE: Final = 1
"""Number of the first write of a process."""
LEAST_COMPARED: Final = 2
"""Logs below which nothing can be compared."""
EQUAL: Final = "Megatrace's logs say what was enqueued and not what has ended, and all ranks have enqueued equally many"
_NO_HASH: Final = "Megatrace's logs do not say to which communicator an operation belongs"
_MESSAGES: Final = ("Send", "Recv")
_KINDS: Final = {
    "AllReduce": Kind.ALL_REDUCE, "Broadcast": Kind.BROADCAST, "Reduce": Kind.REDUCE, "AllGather": Kind.ALL_GATHER,
    "ReduceScatter": Kind.REDUCE_SCATTER,
}  # fmt: skip
"""Sends and receives are left out: a line does not say to whom."""


@dataclass(frozen=True)
class Enqueued:
    """What one log says that one rank has enqueued.

    Attributes:
        rank: Global rank.
        first: Number of the first write that it holds.
        last: Number of the last one.
        rows: Of each collective, in order: nanoseconds of unix time, kind, elements, index into `groups`.
        groups: Hashes; "" where there is none.
        has_messages: Sends or receives are among what it has enqueued.
        has_gaps: Its counters say that lines are missing.
    """

    rank: int
    first: int
    last: int
    rows: tuple[tuple[int, int, int, int], ...]
    groups: tuple[str, ...]
    has_messages: bool = False
    has_gaps: bool = False

    @property
    def is_whole(self) -> bool:
        """All that the rank has enqueued is in it, as far as that can be seen."""
        return self.first <= FIRST_WRITE and not self.has_gaps

    @property
    def span_ns(self) -> tuple[int, int]:
        """Unix time of its first and of its last collective; zeros without any."""
        times = [at_ns for at_ns, *_ in self.rows]
        return (min(times), max(times)) if times else (0, 0)


@dataclass(frozen=True)
class Megatrace:
    """What a file says, by rank."""

    ranks: tuple[Enqueued, ...]


class _Line(NamedTuple):
    """One operation as it is written; `kind` is None of sends and receives, and of what is not known."""

    at_ns: int
    name: str
    kind: int | None
    elements: int
    stream: bytes
    number: int
    group: str


def read_megatrace(stream: IO[bytes]) -> Megatrace:
    """What a log says.

    Raises:
        FormatError: It has no operation, or far too many.
    """
    ranks: dict[int, list[list[tuple[int, _Line]]]] = {}
    for number, (rank, saved, line) in enumerate(_lines(stream)):
        if number >= MOST_OPS:
            raise FormatError(f"it has more than {MOST_OPS:,} operations")
        attempts = ranks.setdefault(rank, [[]])
        if attempts[-1] and saved < attempts[-1][-1][0] and line.at_ns > attempts[-1][-1][1].at_ns:
            attempts.append([])  # writes are counted anew: the process was started again
        attempts[-1].append((saved, line))
    found = [_enqueued(rank, lines) for rank, attempts in sorted(ranks.items()) for lines in attempts]
    if not any(one.rows for one in found):
        raise FormatError("it has no operation that is known")
    return Megatrace(tuple(found))


def _enqueued(rank: int, lines: list[tuple[int, _Line]]) -> Enqueued:
    lines = sorted(lines, key=itemgetter(0))  # those of one write stay in their order
    groups: dict[str, int] = {}
    rows = tuple(
        (line.at_ns, line.kind, line.elements, groups.setdefault(line.group, len(groups)))
        for _, line in lines
        if line.kind is not None
    )
    return Enqueued(
        rank, lines[0][0], lines[-1][0], rows, tuple(groups),
        has_messages=any(line.name in _MESSAGES for _, line in lines),
        has_gaps=_has_gaps(line for _, line in lines),
    )  # fmt: skip


def _has_gaps(lines: Iterable[_Line]) -> bool:
    """Are lines missing between these? What counts streams has no gaps by stream, what counts groups none by group."""
    by_stream: dict[bytes, int] = {}
    by_group: dict[tuple[bytes, str], int] = {}
    stream_gap = group_gap = False
    for line in lines:
        group = line.stream, line.group
        stream_gap |= line.number > by_stream.get(line.stream, line.number) + 1
        group_gap |= line.number > by_group.get(group, line.number) + 1
        by_stream[line.stream] = by_group[group] = line.number
    return stream_gap and group_gap


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, int, _Line]]:
    """Rank, number of the write, and the operation."""
    while line := stream.readline(1 << 14):
        found = _LINE.search(line)
        if not found:
            continue
        saved, s, fraction, rank, name, count, pointer, number, group = found.groups()
        if int(rank) >= MOST_RANK or len(s) > 10:
            continue
        at_ns = int(s) * 10**9 + int((fraction + b"000000000")[:9])
        kind = _KINDS.get(name.decode())
        known = None if kind is None else int(kind)
        yield (
            int(rank),
            int(saved),
            _Line(at_ns, name.decode(), known, int(count), pointer, int(number), (group or b"").decode()),
        )


def of_last_attempt(logs: Iterable[Enqueued]) -> tuple[list[Enqueued], bool]:
    """The logs of the last attempt of a job, one of each rank, and whether there are others of earlier attempts.

    The parts of a log that was rotated follow each other and are joined. Two logs of one rank that both begin at the
    first write are of two attempts. A log that ends before another rank's last attempt begins is of an earlier one.
    """
    of_rank: dict[int, list[Enqueued]] = {}
    for one in sorted(logs, key=lambda one: (one.rank, one.span_ns, one.first)):
        mine = of_rank.setdefault(one.rank, [])
        if mine and mine[-1].last <= one.first > FIRST_WRITE:
            mine[-1] = _joined(mine[-1], one)
        else:
            mine.append(one)
    began_ns = min((mine[-1].span_ns[0] for mine in of_rank.values() if len(mine) > 1), default=0)
    return [mine[-1] for mine in of_rank.values() if mine[-1].span_ns[1] >= began_ns], began_ns > 0


def _joined(one: Enqueued, other: Enqueued) -> Enqueued:
    groups = dict.fromkeys((*one.groups, *other.groups))
    at = {name: number for number, name in enumerate(groups)}
    rows = [*one.rows, *((ns, kind, count, at[other.groups[group]]) for ns, kind, count, group in other.rows)]
    return Enqueued(
        one.rank, one.first, other.last, tuple(rows), tuple(groups),
        has_messages=one.has_messages or other.has_messages,
        has_gaps=one.has_gaps or other.has_gaps or other.first > one.last + 1,
    )  # fmt: skip


def incomparable(logs: Iterable[Enqueued]) -> str:
    """Why nothing follows from how many operations these have enqueued, in one sentence; empty if something does.

    Args:
        logs: One of each rank.
    """
    logs = list(logs)
    whole = [one for one in logs if one.is_whole]
    if len(whole) < LEAST_COMPARED:
        return "fewer than two of Megatrace's logs are whole, so there is nothing to compare"
    if all("" not in one.groups for one in logs):
        return ""
    if any(one.has_messages for one in logs):
        return f"{_NO_HASH}, and the ranks exchange messages, so they need not enqueue the same collectives"
    longest = max(whole, key=lambda one: len(one.rows))
    if any(not _is_beginning(one, longest) for one in whole):
        return f"{_NO_HASH}, and the ranks have enqueued different ones"
    return ""


def _is_beginning(one: Enqueued, other: Enqueued) -> bool:
    """Has the other enqueued the same, and perhaps more?"""
    return all(mine[1:3] == theirs[1:3] for mine, theirs in zip(one.rows, other.rows, strict=False))


def dumps_of(logs: Iterable[Enqueued], world_size: int = 0) -> dict[int, Dump]:
    """As if each rank had dumped its operations; none for those of whose log lines are missing.

    Args:
        logs: One of each rank.
        world_size: How many ranks there are at the least.
    """
    logs = list(logs)
    whole = {one.rank: one for one in logs if one.is_whole}
    if incomparable(logs):
        return {one.rank: dump_of("megatrace", one.rank, (), (), hides_messages=True) for one in logs}
    has_silent = max(world_size, *(one.rank + 1 for one in logs)) > len(logs)
    members: dict[str, set[int]] = {}
    counts: dict[str, dict[int, int]] = {}
    for one in logs:
        for name in one.groups:
            members.setdefault(name, set()).add(one.rank)
    for one in whole.values():
        for _, _, _, group in one.rows:
            of = counts.setdefault(one.groups[group], {})
            of[one.rank] = of.get(one.rank, 0) + 1
    # A rank without a log may be in any group.
    ranks = {name: (*sorted(of), *([NOT_KNOWN] if has_silent else [])) for name, of in members.items()}
    least = {name: min(of.values()) for name, of in counts.items()}
    last = max(one.last for one in logs)
    return {rank: _dump(one, ranks, least, is_cut=one.last < last) for rank, one in whole.items()}


def _dump(one: Enqueued, members: dict[str, tuple[int, ...]], least: dict[str, int], *, is_cut: bool) -> Dump:
    seq = [0] * len(one.groups)
    rows = []
    for at_ns, kind, count, group in one.rows:
        seq[group] += 1
        is_done = seq[group] <= least[one.groups[group]]
        rows.append(Counted(group, seq[group], is_done, kind, count, created_ns=at_ns))
    groups = [Group(name or "all", "", members[name]) for name in one.groups]
    return dump_of("megatrace", one.rank, groups, rows, hides_messages=is_cut or one.has_messages or "" in one.groups)
