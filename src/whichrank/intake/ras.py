"""What NCCL's RAS says of a job, as JSON (since 2.28.7): who is there, and how much each rank has launched.

It counts what hosts have launched, of five kinds of collectives, and nothing of what is complete: ranks that hang in
one and the same operation look healthy. One look says little, since a host that runs ahead of another is ahead for a
moment in any job; what it knows for sure is where each rank runs, and which of them do not answer any more.

Versions 2.28.7 to 2.28.9 leave out a comma behind each rank that is missing; it is put back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from whichrank.errors import FormatError
from whichrank.intake.facts import Fact

HINT: Final = b'"communicators_count"'
MOST_RANK: Final = 1 << 20
_NO_COMMA: Final = re.compile(rb'("nvml_dev"\s*:\s*-?\d+)(\s*\n\s*"status")')


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
    collective_counts: dict[str, int] = msgspec.field(default_factory=dict)


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
        behind: Ranks that have launched less than others of the largest communicator, by how much.
        unresponsive: Ranks that do not answer.
    """

    version: str
    world_size: int
    facts: tuple[Fact, ...]
    behind: dict[int, int]
    unresponsive: tuple[int, ...]


def read_ras(data: bytes) -> Ras:
    """What a look says.

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
    launched = {one.rank: sum(one.collective_counts.values()) for one in largest.ranks}
    most = max(launched.values(), default=0)
    return Ras(
        version=report.nccl_version,
        world_size=largest.size,
        facts=(*map(_fact, largest.ranks), *map(_missing, largest.missing_ranks)),
        behind={rank: most - count for rank, count in launched.items() if count < most},
        unresponsive=tuple(sorted(one.rank for one in largest.missing_ranks)),
    )


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
