"""Lines of PyTorch's watchdog of NCCL: which operation of a group ran out of time, and how far a rank is on it.

A rank whose operation has timed out says which work of the group it has enqueued last, and which is complete; so do the
others when they are asked for their dumps, and then with whatever they had enqueued. That is what a dump would say of
the group's collectives, so the lines are read as one. They are logged by default, where dumps are not.

Times are not compared. Of a group in which a send or a receive has timed out nothing is told: its sends and receives
have numbers of their own. (torch: ProcessGroupNCCL.cpp; the words are those of 2.2 to 2.13.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from whichrank.intake.counted import Counted, dump_of
from whichrank.intake.flight_dump import (
    KINDS,
    OF_ALL,
    OF_LISTS,
    Dump,
    Group,
)
from whichrank.model.rows import Kind

HINTS: Final = ("last enqueued", "Last enqueued", "Watchdog caught")
MOST_RANK: Final = 1 << 20
MOST_AHEAD: Final = 256
"""Operations beyond the last complete one that are told of a rank."""
LEAST_IN_LINE: Final = 2
"""Members from which it shows that those of a group are evenly spaced."""
_GLOBAL: Final = re.compile(r"\[(?:rank|default)(\d{1,7})\]:")
_WHO: Final = re.compile(
    r"\[PG (?:ID \d+ PG GUID ([^\s()\]]{1,128})(?:\(([^)\]]{0,128})\))?|(\d{1,9})) Rank (\d{1,7})\]"
)
_STATUS: Final = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d{1,18})\b.*?last completed (?:NCCL )?work: (-?\d{1,18})\b", re.IGNORECASE
)
_TIMED_OUT: Final = re.compile(
    r"\[Rank (\d{1,7})\] Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w{1,64})(?:, NumelIn=(\d{1,18}), NumelOut=(\d{1,18}))?"
)
_AT_WORK: Final = re.compile(r"detected by watchdog at work(?: sequence id)?: (\d{1,18})\b")
_FIRST_GROUP: Final = "0"


@dataclass(frozen=True)
class TimedOut:
    """An operation that a rank has waited for too long.

    Attributes:
        seq: Its number.
        op: As torch names it, in lower case.
        count: Elements of its input, -1 if it is not said.
        out_count: The same of its output.
    """

    seq: int
    op: str
    count: int
    out_count: int


@dataclass(frozen=True)
class Standing:
    """How far a rank is on a group.

    Attributes:
        rank: Global rank.
        group: Name of the group.
        desc: What it is for, "" if it is not said.
        group_rank: Its rank in the group.
        enqueued: Number of the last collective that it has enqueued, -1 none.
        completed: The same of the last that is complete.
        timed_out: What it waited for, None if it did not say.
    """

    rank: int
    group: str
    desc: str
    group_rank: int
    enqueued: int
    completed: int
    timed_out: TimedOut | None = None


@dataclass
class Watchdog:
    """What the watchdogs of processes write, line by line."""

    standings: dict[tuple[int, str], Standing] = field(default_factory=dict)
    _timed_out: dict[tuple[int, int], TimedOut] = field(default_factory=dict)

    def see(self, line: str) -> None:
        """A line in which one of `HINTS` stands."""
        prefix = _GLOBAL.search(line)
        if found := _TIMED_OUT.search(line):
            rank = int(prefix.group(1) if prefix else found.group(1))
            seq, op = int(found.group(2)), found.group(3).lower()
            sizes = [int(text) if text else -1 for text in found.groups()[3:5]]
            self._timed_out.setdefault((rank, seq), TimedOut(seq, op, *sizes))
        elif (found := _STATUS.search(line)) and (who := _WHO.search(line)):
            guid, desc, number, group_rank = who.groups()
            group = guid or number
            # Only in the first group of all is a rank's number the same everywhere.
            if not prefix and group != _FIRST_GROUP:
                return
            rank = int(prefix.group(1) if prefix else group_rank)
            at = _AT_WORK.search(line)
            timed_out = self._timed_out.get((rank, int(at.group(1)))) if at else None
            enqueued, completed = int(found.group(1)), int(found.group(2))
            if rank < MOST_RANK and completed <= enqueued:
                before = self.standings.get((rank, group))
                timed_out = timed_out or (before.timed_out if before else None)
                self.standings[rank, group] = Standing(
                    rank, group, desc or "", int(group_rank), enqueued, completed, timed_out
                )


def dumps_of(standings: Iterable[Standing], world_size: int = 0) -> dict[int, Dump]:
    """As if each rank had dumped what it has enqueued of each group and what was not complete of it.

    Args:
        standings: Of all ranks.
        world_size: How many ranks there are at the least.
    """
    of_group: dict[str, dict[int, Standing]] = {}
    for one in standings:
        of_group.setdefault(one.group, {})[one.rank] = one
    groups, ops = {}, {}
    for name, members in of_group.items():
        if len({one.group_rank for one in members.values()}) < len(members):
            continue  # several groups have this name
        if any(one.timed_out and one.timed_out.op in ("send", "recv") for one in members.values()):
            continue
        is_of_all = name == _FIRST_GROUP or any(one.desc in OF_ALL for one in members.values())
        ranks = tuple(range(max(*members, world_size - 1) + 1)) if is_of_all else _members(members)
        if not ranks:
            continue
        desc = OF_ALL[0] if is_of_all else next((one.desc for one in members.values() if one.desc), "")
        groups[name] = Group(name, desc, ranks)
        ops[name] = {one.timed_out.seq: one.timed_out for one in members.values() if one.timed_out}
    stands: dict[int, list[tuple[Group, Standing, dict[int, TimedOut]]]] = {}
    for name, group in groups.items():
        for rank, one in of_group[name].items():
            stands.setdefault(rank, []).append((group, one, ops[name]))
    return {rank: _dump(rank, mine) for rank, mine in sorted(stands.items())}


def _members(said: Mapping[int, Standing]) -> tuple[int, ...]:
    """Global ranks by group rank: those that have written, and between them those that are evenly spaced.

    Args:
        said: By global rank.

    Returns:
        Nothing if it is not known who is between them.
    """
    by_place = {one.group_rank: rank for rank, one in said.items()}
    places = sorted(by_place)
    if places == list(range(len(places))):
        return tuple(by_place[place] for place in places)
    if len(places) < LEAST_IN_LINE or places[-1] >= MOST_RANK:
        return ()
    stride = (by_place[places[-1]] - by_place[places[0]]) // (places[-1] - places[0])
    first = by_place[places[0]] - stride * places[0]
    if first < 0 or stride < 1 or any(by_place[place] != first + stride * place for place in places):
        return ()
    return tuple(range(first, first + stride * (places[-1] + 1), stride))


def _dump(rank: int, stands: list[tuple[Group, Standing, dict[int, TimedOut]]]) -> Dump:
    rows = [
        _counted(at, seq, one, one.timed_out if one.timed_out and one.timed_out.seq == seq else ops.get(seq))
        for at, (_, one, ops) in enumerate(stands)
        for seq in range(max(one.completed, one.enqueued - MOST_AHEAD, 1), one.enqueued + 1)
    ]
    return dump_of("watchdog", rank, [group for group, _, _ in stands], rows)


def _counted(group: int, seq: int, one: Standing, op: TimedOut | None) -> Counted:
    is_done = seq <= one.completed
    if not op:
        return Counted(group, seq, is_done)
    kind, lists = KINDS.get(op.op, Kind.OTHER), op.op in OF_LISTS
    return Counted(group, seq, is_done, kind, max(op.count, 0), max(op.out_count, 0), lists=lists)
