"""What NCCL's RAS says of a job as text (since 2.24): less than as JSON, since only who stands out is listed.

Of counts that differ, the ranks of small sets are listed, whether they are behind or ahead; all others have the one
count that is not listed. Only communicators of the largest size are read, whose ranks are taken for the job's. A text
has no time; it may hold several snapshots, one behind the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from whichrank.errors import FormatError
from whichrank.intake.facts import Fact
from whichrank.intake.ras import MOST_RANK, Ras, Snapshots

MOST_POLLS: Final = 4096
_BEGIN: Final = re.compile(r"^Job summary\s*$", re.MULTILINE)
_IN_HEAD: Final = re.compile(rb"(?:^|\n)Job summary\r?\n=+\r?\n")
_VERSION: Final = re.compile(r"^NCCL version (\S{1,32}) compiled", re.MULTILINE)
_ROW: Final = re.compile(r"^\s*(\d{1,9})\s+\d+\s+\S+\s+\S+\s+(\d{1,9})\s+\d+\s+[A-Z,]+\s+[A-Z,]+\s*$")
_SECTION: Final = re.compile(r"^#(\d{1,9})-(\d{1,9}) \(([0-9a-f]{1,16})\) (INCOMPLETE|MISMATCH|ERROR)")
_COUNTS_OF: Final = re.compile(r"^\s+Communicator ranks have different (\w+) operation counts")
_MANY: Final = re.compile(
    r"^\s+(\d{1,9}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)"
)
_ONE: Final = re.compile(
    r"^\s+Rank (\d{1,9})"
    r"(?: has (?:launched up to operation (\d{1,18})|(not launched any operations)|status \w+))? -- "
    r"(?:GPU \S+(?: \(.*?\))? managed by process (\d{1,10}) on node (\S{1,256}))?"
)
_PROCESS: Final = re.compile(r"^\s+Process (\d{1,10}) on node (\S{1,256}) managing GPU")


@dataclass
class _Counts:
    """What ranks of one communicator have launched of one kind of collective.

    Attributes:
        listed: By rank.
        sets: Of each set of ranks with one count, the count and how many of its ranks are listed.
    """

    listed: dict[int, int] = field(default_factory=dict)
    sets: list[list[int]] = field(default_factory=list)

    def of_all(self, size: int, missing: set[int]) -> dict[int, int] | None:
        """By rank; None if some are not known."""
        not_listed = [count for count, listed in self.sets if not listed]
        others = set(range(size)) - missing - set(self.listed)
        if others and len(not_listed) != 1:
            return None
        return self.listed | dict.fromkeys(others, not_listed[0] if not_listed else 0)


def is_ras_text(head: bytes) -> bool:
    """Does something that begins like this look like it?"""
    return _IN_HEAD.search(head) is not None


def read_ras_text(data: bytes) -> Snapshots:
    """What the snapshots in a text say.

    Raises:
        FormatError: There is none.
    """
    text = data.decode("utf-8", "replace")
    begins = [found.start() for found in _BEGIN.finditer(text)][:MOST_POLLS]
    version = _VERSION.search(text)
    bounds = pairwise([*begins, len(text)])
    polls = [_snapshot(text[begin:end], version.group(1) if version else "") for begin, end in bounds]
    found = tuple(snapshot for snapshot in polls if snapshot is not None)
    if not found:
        raise FormatError("the status of RAS has no communicators")
    return Snapshots(found)


def _snapshot(text: str, version: str) -> Ras | None:
    sizes = {int(found.group(1)): int(found.group(2)) for line in text.splitlines() if (found := _ROW.match(line))}
    world = max(sizes.values(), default=0)
    if not 0 < world <= MOST_RANK:
        return None
    facts: dict[int, Fact] = {}
    missing: set[int] = set()
    dead: set[tuple[str, int]] = set()
    counts: dict[str, dict[str, _Counts]] = {}
    for where, line in _in_sections(text, {group for group, size in sizes.items() if size == world}):
        if where == "DEAD" and (found := _PROCESS.match(line)):
            dead.add((found.group(2), int(found.group(1))))
        elif isinstance(where, tuple):
            _see(line, where, counts, facts, missing, world)
    known = {name: whole for name, of in counts.items() if (whole := _summed(of.values(), world, missing)) is not None}
    reported = [_fact(fact, rank in missing, (fact.host, fact.pid) in dead) for rank, fact in sorted(facts.items())]
    return Ras(version, world, tuple(reported), "", known, tuple(sorted(missing)))


def _in_sections(text: str, groups: set[int]) -> Iterator[tuple[str | tuple[str, str, str], str]]:
    """Lines with the section they are in: DEAD, or the hash of a communicator of these groups, its error and a kind."""
    where: str | tuple[str, str, str] = ""
    for line in text.splitlines():
        if found := _SECTION.match(line):
            where = (found.group(3), found.group(4), "") if int(found.group(1)) in groups else ""
        elif line[:1].isalpha():
            where = line.strip()
        elif isinstance(where, tuple) and (of := _COUNTS_OF.match(line)):
            where = (where[0], where[1], of.group(1))
        else:
            yield where, line


def _see(
    line: str, where: tuple[str, str, str], counts: dict[str, dict[str, _Counts]], facts: dict[int, Fact],
    missing: set[int], world: int,
) -> None:  # fmt: skip
    """A line on a communicator."""
    name, error, kind = where
    of = counts.setdefault(name, {}).setdefault(kind, _Counts()) if error == "MISMATCH" and kind else None
    if of and (found := _MANY.match(line)):
        of.sets.append([int(found.group(2) or 0), 0])
    elif found := _ONE.match(line):
        rank, launched, none, pid, host = found.groups()
        if int(rank) >= world:
            return
        if pid:
            facts.setdefault(int(rank), Fact(int(rank), host, int(pid)))
        if error == "INCOMPLETE":
            missing.add(int(rank))
        elif of and (launched or none):
            of.listed[int(rank)] = int(launched or 0)
        elif of and of.sets:
            of.sets[-1][1] += 1
            of.listed[int(rank)] = of.sets[-1][0]


def _summed(kinds: Iterable[_Counts], world: int, missing: set[int]) -> dict[int, int] | None:
    total: dict[int, int] = {}
    for of in kinds:
        whole = of.of_all(world, missing)
        if whole is None:
            return None
        for rank, count in whole.items():
            total[rank] = total.get(rank, 0) + count
    return total


def _fact(fact: Fact, is_missing: bool, is_dead: bool) -> Fact:
    if not is_missing and not is_dead:
        return fact
    words = "considered dead" if is_dead else "unresponsive"
    return Fact(fact.rank, fact.host, fact.pid, words=(f"{words} (NCCL RAS)",), is_dead=is_dead)
