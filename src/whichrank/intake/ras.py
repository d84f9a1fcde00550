"""What NCCL's RAS says of a job: who is there, and, as JSON (since 2.28.7), how much each rank has launched.

It counts what hosts have launched, of five kinds of collectives, and nothing of what is complete: ranks that hang in
one and the same operation look healthy. One snapshot says little, since a host that runs ahead of another is ahead for
a moment in any job; what it knows for sure is where each rank runs, and which of them do not answer any more. Where two
looks find the same counts, and unequal ones, those that have launched less are waited for.

Versions 2.28.7 to 2.28.9 leave out a comma behind each rank that is missing; it is put back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from whichrank.errors import FormatError
from whichrank.intake.counted import Counted, dump_of
from whichrank.intake.facts import Fact
from whichrank.intake.flight_dump import Dump, Group

HINT: Final = b'"communicators_count"'
LEAST_POLLS: Final = 2
MOST_AHEAD: Final = 64
"""Collectives that a rank may have launched beyond another, and all are reported."""
MOST_RANK: Final = 1 << 20
_NEXT: Final = re.compile(rb"(?<=\n\})\s*(?=\{)")
_NO_COMMA: Final = re.compile(
    rb'("nvml_dev"[^\S\n]{0,64}:[^\S\n]{0,64}-?\d{1,9})([^\S\n]{0,64}\n[^\S\n]{0,64}"status")'
)


class _Status(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = 0
    cuda_dev: int = -1
    nvml_dev: int = -1
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]] = msgspec.field(default_factory=dict)


class _Communicator(msgspec.Struct):
    hash: str = ""
    size: int = 0
    ranks: list[_Rank] = msgspec.field(default_factory=list)
    missing_ranks: list[_Rank] = msgspec.field(default_factory=list)


class _Report(msgspec.Struct):
    nccl_version: str = ""
    timestamp: str = ""
    communicators: list[_Communicator] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class Ras:
    """One look at a job.

    Attributes:
        version: Of NCCL.
        world_size: Members of the largest communicator, whose ranks are taken for the job's.
        facts: Of ranks.
        timestamp: When it was, by the clock of who was asked.
        launched: By communicator, and then by global rank, how many collectives each member has launched.
        unresponsive: Ranks that do not answer.
    """

    version: str
    world_size: int
    facts: tuple[Fact, ...]
    timestamp: str
    launched: dict[str, dict[int, int]]
    unresponsive: tuple[int, ...]

    @property
    def behind(self) -> dict[int, int]:
        """Ranks that have launched less than another member of a communicator, and by how much at the most."""
        found: dict[int, int] = {}
        for counts in self.launched.values():
            most = max(counts.values(), default=0)
            found |= {rank: max(found.get(rank, 0), most - n) for rank, n in counts.items() if n < most}
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class Snapshots:
    """What one file holds, in order."""

    polls: tuple[Ras, ...]


def read_snapshots(data: bytes) -> Snapshots:
    """The snapshots in a file, one behind the other.

    Raises:
        FormatError: One of them is none.
    """
    return Snapshots(tuple(read_ras(one) for one in _NEXT.split(data.strip())))


def read_ras(data: bytes) -> Ras:
    """What a snapshot says.

    Raises:
        FormatError: It is none.
    """
    try:
        report = msgspec.json.decode(_NO_COMMA.sub(rb"\1,\2", data), type=_Report, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"the status of RAS cannot be read: {error}") from error
    if not report.communicators:
        raise FormatError("the status of RAS has no communicators")
    largest = max(report.communicators, key=lambda one: one.size)
    if not all(0 <= one.rank < MOST_RANK for one in (*largest.ranks, *largest.missing_ranks)):
        raise FormatError("the status of RAS has ranks that are none")
    global_rank = {(one.host, one.pid, one.cuda_dev): one.rank for one in largest.ranks}
    launched: dict[str, dict[int, int]] = {}
    for communicator in report.communicators:
        counts = {
            global_rank[place]: sum(one.collective_counts.values())
            for one in communicator.ranks
            if (place := (one.host, one.pid, one.cuda_dev)) in global_rank
        }
        launched[communicator.hash or f"#{len(launched)}"] = counts
    return Ras(
        version=report.nccl_version,
        world_size=largest.size,
        facts=(*map(_fact, largest.ranks), *map(_missing, largest.missing_ranks)),
        timestamp=report.timestamp,
        launched=launched,
        unresponsive=tuple(sorted(one.rank for one in largest.missing_ranks)),
    )


def standing_still(polls: Iterable[Ras]) -> Ras | None:
    """The last of several looks at a job, if all found the same counts, and unequal ones.

    Or if one rank stood, behind all others, while these advanced: a host runs ahead of one that does nothing.
    """
    polls = sorted(polls, key=lambda one: one.timestamp)
    if len(polls) >= LEAST_POLLS and len({one.timestamp for one in polls}) in (1, len(polls)) and _one_stood(polls):
        return polls[-1]
    # A text has no time; one snapshot that is there twice says nothing.
    times = len(polls) if not any(one.timestamp for one in polls) else len({one.timestamp for one in polls})
    if times < LEAST_POLLS or any(one.launched != polls[0].launched for one in polls) or not polls[0].behind:
        return None
    return polls[-1]


def _one_stood(polls: Sequence[Ras]) -> bool:
    """Did one rank launch nothing between the first and the last look, and each other one of its communicators?"""
    first, last = polls[0].launched, polls[-1].launched
    stood: set[int] = set()
    for name, counts in last.items():
        before = first.get(name, {})
        if set(before) != set(counts):
            return False
        still = {rank for rank, count in counts.items() if count == before[rank]}
        if still == set(counts):
            continue
        if len(still) != 1 or counts[min(still)] >= min(n for rank, n in counts.items() if rank not in still):
            return False
        stood |= still
    return len(stood) == 1


def dumps_of(ras: Ras) -> dict[int, Dump]:
    """As if each rank had dumped its collectives: complete where all members have launched them, else under way."""
    members = {name: tuple(sorted({*counts, *_silent(ras, counts)})) for name, counts in ras.launched.items()}
    least = {name: min(counts.values(), default=0) for name, counts in ras.launched.items()}
    groups = tuple(Group(name, "", members[name]) for name in ras.launched)
    found = {}
    for rank in sorted({rank for counts in ras.launched.values() for rank in counts}):
        rows = [
            Counted(at, seq, is_done=seq <= least[name])
            for at, (name, counts) in enumerate(ras.launched.items())
            if rank in counts
            for seq in range(
                max(least[name], counts[rank] - MOST_AHEAD) + 1 - (counts[rank] == least[name]), counts[rank] + 1
            )
        ]
        found[rank] = dump_of("ras", rank, groups, rows)
    return found


def _silent(ras: Ras, counts: Mapping[int, int]) -> tuple[int, ...]:
    """Members that do not answer, of a communicator of all: they may be who the others wait for."""
    return ras.unresponsive if len(counts) + len(ras.unresponsive) == ras.world_size else ()


def _fact(one: _Rank) -> Fact:
    words = ("its communicator has an asynchronous error (NCCL RAS)",) if one.status.async_error else ()
    return Fact(one.rank, one.host, one.pid, words=words)


def _missing(one: _Rank) -> Fact:
    """A rank that does not answer; after a minute of that it is considered dead."""
    dead = one.status.considered_dead
    words = "considered dead" if dead else "unresponsive"
    return Fact(one.rank, one.host, one.pid, words=(f"{words} (NCCL RAS)",), is_dead=dead)


def is_ras(head: bytes) -> bool:
    """Does something that begins like this look like it?"""
    return head.lstrip()[:1] == b"{" and HINT in head
