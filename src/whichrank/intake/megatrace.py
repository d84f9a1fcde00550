"""Logs of Megatrace: a line for each operation that a host has enqueued, with its time, kind and count.

Nothing says when an operation has ended. But no member of a group can have ended what another has not enqueued, and
whoever stands still has ended the others. So of each group what all members have enqueued counts as complete, and what
some have as under way. Groups are told apart by their hash; without one (older logs have only a pointer that is
another one in each process) all operations are taken for those of one group of all ranks, and nobody is named, since
some may do less by design. Sends and receives are left out. A log that begins later than the others has lost lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Final

from whichrank.errors import FormatError
from whichrank.intake.counted import Counted, dump_of
from whichrank.intake.flight_dump import Dump, Group
from whichrank.model.rows import Kind

HINT: Final = b"[save_count "
MOST_OPS: Final = 1 << 24
MOST_RANK: Final = 1 << 20
_LINE: Final = re.compile(
    rb"\[save_count (\d{1,18})\] \[(\d{1,18})\.(\d{1,18})\] \[Rank (\d{1,9})\] Fun (\w{1,64}) Data (\d{1,18}) "
    rb"stream \S{1,64} opCount (\d{1,18})"
    rb"(?:\s+groupHash (\w+))?"
)
_KINDS: Final = {
    "AllReduce": Kind.ALL_REDUCE, "Broadcast": Kind.BROADCAST, "Reduce": Kind.REDUCE, "AllGather": Kind.ALL_GATHER,
    "ReduceScatter": Kind.REDUCE_SCATTER,
}  # fmt: skip
"""Sends and receives are left out: a line does not say to whom."""


@dataclass(frozen=True)
class Enqueued:
    """What one rank has enqueued: time, kind, elements and group of each operation, in order.

    Attributes:
        rank: Global rank.
        first: Number of its first line.
        rows: Of each operation: nanoseconds of unix time, kind, elements, index into `groups`.
        groups: Hashes; "" where there is none.
    """

    rank: int
    first: int
    rows: tuple[tuple[int, int, int, int], ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Megatrace:
    """What a file says, by rank."""

    ranks: tuple[Enqueued, ...]


def read_megatrace(stream: IO[bytes]) -> Megatrace:
    """What a log says.

    Raises:
        FormatError: It has no operation, or far too many.
    """
    ranks: dict[int, dict[int, tuple[int, int, int, str]]] = {}
    for number, (saved, s, ns, rank, kind, count, group) in enumerate(_lines(stream)):
        if number >= MOST_OPS:
            raise FormatError(f"it has more than {MOST_OPS:,} operations")
        ranks.setdefault(rank, {})[saved] = (s * 10**9 + ns, kind, count, group)
    if not ranks:
        raise FormatError("it has no operation that is known")
    found = []
    for rank, ops in sorted(ranks.items()):
        groups: dict[str, int] = {}
        rows = tuple(
            (at, kind, count, groups.setdefault(group, len(groups)))
            for _, (at, kind, count, group) in sorted(ops.items())
        )
        found.append(Enqueued(rank, min(ops), rows, tuple(groups)))
    return Megatrace(tuple(found))


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, int, int, int, int, int, str]]:
    while line := stream.readline(1 << 14):
        found = _LINE.search(line)
        if not found:
            continue
        saved, s, fraction, rank, kind, count, _, group = found.groups()
        known = _KINDS.get(kind.decode())
        if known is None or int(rank) >= MOST_RANK or len(s) > 10 or len(count) > 18:
            continue
        ns = int((fraction + b"000000000")[:9])
        yield int(saved), int(s), ns, int(rank), int(known), int(count), (group or b"").decode()


def dumps_of(enqueued: Iterable[Enqueued]) -> dict[int, Dump]:
    """As if each rank had dumped its operations; none for those whose log begins later than others."""
    enqueued = list(enqueued)
    first = min((one.first for one in enqueued), default=0)
    ranks = {one.rank: one for one in enqueued if one.first == first}
    counts: dict[str, dict[int, int]] = {}
    for one in ranks.values():
        for _, _, _, group in one.rows:
            of = counts.setdefault(one.groups[group], {})
            of[one.rank] = of.get(one.rank, 0) + 1
    members = {name: tuple(sorted(of)) for name, of in counts.items()}
    least = {name: min(of.values()) for name, of in counts.items()}
    return {rank: _dump(one, members, least) for rank, one in ranks.items()}


def _dump(one: Enqueued, members: dict[str, tuple[int, ...]], least: dict[str, int]) -> Dump:
    seq = [0] * len(one.groups)
    rows = []
    for at_ns, kind, count, group in one.rows:
        seq[group] += 1
        is_done = seq[group] <= least[one.groups[group]]
        rows.append(Counted(group, seq[group], is_done, kind, count, created_ns=at_ns))
    groups = [Group(name or "all", "", members[name]) for name in one.groups]
    return dump_of("megatrace", one.rank, groups, rows, hides_messages="" in one.groups)
