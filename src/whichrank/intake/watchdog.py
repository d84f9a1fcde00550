"""Lines of PyTorch's watchdog of NCCL: which operation of a group ran out of time, and how far a rank is on it.

A rank whose operation has timed out says which work of the group it has enqueued last, and which is complete; so do the
others when they are asked for their dumps, and then with whatever they had enqueued. That is what a dump would say of
the group's collectives, so the lines are read as one. They are logged by default, where dumps are not.

A line names the group and the writer's rank in it, never the other members. Those are known of the group of all ranks,
of a group of which every member has written, and of one whose writers are evenly spaced. Of any other group it is
reported that the writer waits in it, for members that are not known. The same holds where a send, a receive or a batch
of them has timed out: each rank has numbers of its own there, and the line does not name the peer.

Until 2.2 no line says how far a rank is, only what it ran out of time in. Ranks that ran out of time in the same
operation are taken for members of one group. Nobody can be named by that: whoever is silent is a candidate.

(torch: ProcessGroupNCCL.cpp; the words of each version stand in `grammar`.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from whichrank.intake.counted import Counted, dump_of
from whichrank.intake.flight_dump import (
    KINDS,
    NOT_KNOWN,
    OF_ALL,
    OF_LISTS,
    Dump,
    Group,
)
from whichrank.intake.lines.pieces import without_duration
from whichrank.intake.log_time import UNTIMED
from whichrank.intake.standings import Standing, Standings, TimedOut
from whichrank.model.kinds import Kind

HINTS: Final = ("last enqueued", "Last enqueued", "Watchdog caught")
MOST_RANK: Final = 1 << 20
FIRST_TIMED_OUT: Final = 16
MOST_TIMED_OUT: Final = 64
"""Of the operations in which a rank ran out of time, the first and the latest are kept."""
MOST_AHEAD: Final = 256
"""Operations beyond the last complete one that are reported of a rank."""
LEAST_IN_GROUP: Final = 2
"""Members of a group that waits: nobody waits for itself."""
LEAST_IN_LINE: Final = 2
"""Members from which it shows that those of a group are evenly spaced."""
_GLOBAL: Final = re.compile(r"\[rank(\d{1,7})\]:")
_WHO: Final = re.compile(
    r"\[PG (?:ID \d{1,9} PG GUID ([^\s()\]]{1,128})|(\d{1,9})) ?(?:\(([^)\]]{0,128})\))? ?Rank (\d{1,7})\]"
)
_STATUS: Final = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (-?\d{1,18})\b.*?[Ll]ast completed (?:NCCL )?work: (-?\d{1,18})\b"
)
_TIMED_OUT: Final = re.compile(
    r"\[Rank (\d{1,7})\] Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w{1,64})(?:, NumelIn=(\d{1,20}), NumelOut=(\d{1,20}))?(?=[,)])"
)
_AT_WORK: Final = re.compile(r"(?:detected by watchdog at work(?: sequence id)?|Timeout at NCCL work): (\d{1,18})\b")
_RAN: Final = re.compile(r"ran for (\d{1,12}) milliseconds")
_ASKED_BY: Final = re.compile(r"due to a collective timeout from +rank (\d{1,7})\b")
NOT_HERE: Final = (
    "an operation has run out of time, or PyTorch's watchdog had written nothing; its ranks are not among these"
)
_FIRST_GROUP: Final = "0"
MOST_NAMELESS: Final = 1 << 16
NAMELESS: Final = (
    "some ranks ran out of time in a smaller group, and their lines lack what says which ranks of the job these are, "
    "such as `[rank3]:` before it"
)
_MOST_COUNT: Final = 1 << 62
"""Elements of an operation. Of a batch torch writes the largest number that there is."""
_ANY_GROUP: Final = "the group of "
"""Begins the name of a group that no line names; what its members wait in follows."""
_MESSAGES: Final = {"send": Kind.SEND, "recv": Kind.RECV, "coalesced": Kind.OTHER}
"""Operations that each rank of a group counts for itself."""


class Watchdog:
    """What the watchdogs of processes write, line by line.

    Attributes:
        most_rank: The highest rank that is mentioned, -1 if none is.
        left_out: Lines that say something and are not kept.
    """

    def __init__(self) -> None:
        self.most_rank, self.left_out = -1, 0
        self._standings = Standings()
        self._timed_out: dict[int, dict[int, _Lone]] = {}
        self._seen = 0
        self._nameless: set[tuple[int, int]] = set()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What cannot be said of a rank, for people."""
        return (NAMELESS,) if self._nameless else ()

    @property
    def standings(self) -> list[Standing]:
        """What lines say of how far ranks are, in their order; see `Standings` for which are kept."""
        return list(self._standings)

    @property
    def not_kept(self) -> tuple[int, int]:
        """Lines that say something and are not kept, and how many lines there were."""
        return self.left_out + self._standings.left_out, self._seen

    def see(self, line: str, rank: int | None = None, at_s: float = UNTIMED, *, is_cut: bool = False) -> None:
        """A line in which one of `HINTS` stands.

        Args:
            line: What one writer wrote; without its time it is quickly known again.
            rank: Who wrote it, if what stands before it says that.
            at_s: When that was.
            is_cut: The end may be missing.
        """
        key, ran_ms = without_duration(line)
        mentioned, timeout, status = _taken_apart(key, rank, is_cut)
        if timeout is not None and ran_ms >= 0:
            timeout = timeout._replace(ran_s=ran_ms / 1e3)
        self.most_rank = max(self.most_rank, mentioned)
        self._seen += 1
        if timeout is not None:
            self._see_timeout(timeout, at_s)
        elif status is not None and status.rank < 0:
            if status.at >= 0 and len(self._nameless) < MOST_NAMELESS:
                self._nameless.add((status.group_rank, status.at))
        elif status is not None:
            lone = self._timed_out.get(status.rank, {}).get(status.at) if status.at >= 0 else None
            place = status.rank, status.group, status.group_rank
            op = lone.op if lone else None
            self._standings.add(place, status.desc, status.enqueued, status.completed, op, at_s)

    def _see_timeout(self, one: _Timeout, at_s: float) -> None:
        mine = self._timed_out.setdefault(one.rank, {})
        before = mine.get(one.seq)
        if before is not None:
            began_s = at_s - one.ran_s if at_s >= 0 and one.ran_s else UNTIMED
            if before.op.at_s >= began_s:
                return
        op = TimedOut(one.seq, one.op, one.in_count, one.out_count, at_s, one.ran_s)
        order = before.order if before else self._seen
        mine[one.seq] = _Lone(one.place, one.is_known, op, order)  # the one before is of an attempt that is over
        if len(mine) > 2 * MOST_TIMED_OUT:
            for seq in list(mine)[FIRST_TIMED_OUT:-MOST_TIMED_OUT]:
                del mine[seq]
                self.left_out += 1

    def reported(self) -> list[Standing]:
        """What all lines say of how far ranks are.

        A rank may write what it ran out of time in, and end before it says how far it is. If all groups that are named
        are the group of all ranks, and another rank ran out of time in the same operation of it, it waits there too.
        """
        standings = self.standings
        explained: dict[int, list[Standing]] = {}
        for one in standings:
            explained.setdefault(one.rank, []).append(one)
        alone: dict[int, _Lone] = {}
        for rank, ops in self._timed_out.items():
            mine = explained.get(rank, ())
            if any(one.timed_out for one in mine):
                continue
            for seq, lone in ops.items():
                if not lone.is_known and (lone.place, seq) in self._nameless:
                    continue  # a number in a smaller group
                if not any(one.completed < seq <= one.enqueued for one in mine):
                    alone[rank] = lone
                    break
        if not alone:
            return standings
        alone = dict(sorted(alone.items(), key=lambda one: one[1].order))
        said = [one for one in standings if one.timed_out and _is_of_all(one)]
        like = {}
        if all(map(_is_of_all, standings)):
            like = {(one.timed_out.seq, one.timed_out.op, one.timed_out.count): one for one in said if one.timed_out}
        found, others = list[Standing](), dict[tuple[int, str, int], list[tuple[int, _Lone]]]()
        for rank, lone in alone.items():
            op = lone.op
            if (key := (op.seq, op.op, op.count)) in like and (lone.place == rank or not lone.is_known):
                found.append(
                    replace(
                        like[key], rank=rank, group_rank=rank, enqueued=op.seq, completed=op.seq - 1, timed_out=op,
                        at_s=op.at_s,
                    )
                )  # fmt: skip
            else:
                others.setdefault(key, []).append((rank, lone))
        for those in others.values():
            found += _in_a_group(those, standings)
        return [*standings, *found]


class _Lone(NamedTuple):
    """What a rank ran out of time in: its number in the group, whether its number in the job is known, the line's."""

    place: int
    is_known: bool
    op: TimedOut
    order: int


class _Timeout(NamedTuple):
    rank: int
    place: int
    is_known: bool
    seq: int
    op: str
    in_count: int
    out_count: int
    ran_s: float


class _Status(NamedTuple):
    rank: int  # -1: not said, in a group in which its number may be another one
    group: str
    desc: str
    group_rank: int
    enqueued: int
    completed: int
    at: int


_Said = tuple[int, _Timeout | None, _Status | None]
"""The highest rank that a line mentions, -1 if none, and what it says beside."""


@lru_cache(maxsize=1 << 14)
def _taken_apart(line: str, prefix: int | None, is_cut: bool) -> _Said:
    """What a line says, whenever it was written: lines come again and again.

    Args:
        line: Without its head.
        prefix: The rank that wrote it, if what stands before it says that.
        is_cut: The end may be missing.
    """
    mentioned = -1 if prefix is None else prefix
    if "[rank" in line or "due to a collective timeout" in line:
        ranks = [int(found.group(1)) for found in (*_GLOBAL.finditer(line), *_ASKED_BY.finditer(line))]
        mentioned = max([mentioned, *(rank for rank in ranks if rank < MOST_RANK)])
    if found := _TIMED_OUT.search(line):
        timeout = _timeout_in(line, found, prefix)
        return max(mentioned, timeout.rank) if timeout else mentioned, timeout, None
    if (found := _STATUS.search(line)) and (named := _WHO.search(line)):
        status = _status_in(line, found, named, prefix, is_cut=is_cut)
        return max(mentioned, status.rank) if status else mentioned, None, status
    return mentioned, None, None


def _timeout_in(line: str, found: re.Match[str], who: int | None) -> _Timeout | None:
    prefix = _before(line, found, who)
    place = int(found.group(1))
    rank = prefix if prefix is not None else place
    if max(rank, place) >= MOST_RANK:
        return None
    count, out_count = (_elements(text) for text in found.groups()[3:5])
    ran = _RAN.search(line)
    ran_s = int(ran.group(1)) / 1e3 if ran else 0.0
    return _Timeout(
        rank, place, prefix is not None, int(found.group(2)), found.group(3).lower(), count, out_count, ran_s
    )


def _status_in(
    line: str, found: re.Match[str], named: re.Match[str], who: int | None, *, is_cut: bool
) -> _Status | None:
    guid, number, desc, group_rank = named.groups()
    group = guid or number
    prefix = _before(line, named, who)
    # Only in the first group of all is a rank's number the same everywhere.
    if group == _FIRST_GROUP and prefix not in (None, int(group_rank)):
        return None
    rank = prefix if prefix is not None else int(group_rank) if group == _FIRST_GROUP else -1
    at = _AT_WORK.search(line)
    seq = int(at.group(1)) if at else -1
    enqueued, completed = int(found.group(1)), int(found.group(2))
    if completed > enqueued and seq > 0:
        completed = seq - 1  # torch 2.3 writes any number before the first one is complete
    if is_cut and found.end() == len(line) and completed not in (enqueued, seq - 1):
        return None  # digits may be missing
    if rank >= MOST_RANK or completed > enqueued:
        return None
    return _Status(rank, group, desc or "", int(group_rank), enqueued, completed, seq)


def _in_a_group(mine: Sequence[tuple[int, _Lone]], standings: Iterable[Standing]) -> list[Standing]:
    """How far ranks are that ran out of time in one and the same operation, of a group that no line names.

    It is the group of all if their numbers in it are those in the job, and if nobody stands elsewhere on that: an
    operation is complete only where all have enqueued it, so whoever is late there is late by one.
    """
    op = mine[0][1].op
    of_all = [one for one in standings if _is_of_all(one)]
    is_of_all = op.op not in _MESSAGES and all(lone.place == rank for rank, lone in mine)
    is_of_all &= all(one.enqueued >= op.seq - 1 for one in of_all)
    is_of_all &= all(one.timed_out is None or one.timed_out.seq == op.seq for one in of_all)
    name = _FIRST_GROUP if is_of_all else f"{_ANY_GROUP}{op.op} #{op.seq}"
    return [
        Standing(rank, name, OF_ALL[0] if is_of_all else "", lone.place, op.seq, op.seq - 1, lone.op, lone.op.at_s)
        for rank, lone in mine
    ]


def _elements(text: str | None) -> int:
    return int(text) if text and int(text) < _MOST_COUNT else -1


def _is_of_all(one: Standing) -> bool:
    return one.group == _FIRST_GROUP or one.desc in OF_ALL


def _before(line: str, found: re.Match[str], who: int | None) -> int | None:
    """The global rank of who wrote this: two that write at once may share a line, so the nearest prefix counts."""
    near = list(_GLOBAL.finditer(line, 0, found.start())) if "[rank" in line else ()
    return int(near[-1].group(1)) if near else who


def dumps_of(standings: Iterable[Standing], world_size: int = 0) -> dict[int, Dump]:
    """As if each rank had dumped what it has enqueued of each group and what was not complete of it.

    Args:
        standings: Of all ranks, of one attempt; the last of a rank on a group counts.
        world_size: How many ranks there are at the least.
    """
    of_group: dict[str, dict[int, Standing]] = {}
    for one in standings:
        mine = of_group.setdefault(one.group, {})
        before = mine.get(one.rank)
        mine[one.rank] = replace(one, timed_out=one.timed_out or (before.timed_out if before else None))
    stands: dict[int, list[_Stand]] = {}
    for name, members in of_group.items():
        for stand in _stands(name, members, world_size):
            stands.setdefault(stand.standing.rank, []).append(stand)
    return {rank: _dump(rank, mine) for rank, mine in sorted(_read_where_others_wait(stands).items())}


def _read_where_others_wait(stands: Mapping[int, list[_Stand]]) -> dict[int, list[_Stand]]:
    """Without ranks of which no line says how far they are where all ranks meet, if others wait there and they nowhere.

    What they say of a smaller group would make it look as if they had been read and had not come.
    """
    waiting = {rank for rank, mine in stands.items() if any(one.standing.timed_out for one in mine)}
    of_all = {rank for rank, mine in stands.items() if any(one.group.desc == OF_ALL[0] for one in mine)}
    if not waiting & of_all:
        return dict(stands)
    return {rank: mine for rank, mine in stands.items() if rank in of_all | waiting}


class _Stand(NamedTuple):
    """A rank on a group, what is known of the group's operations by number, and on which members do not agree."""

    group: Group
    standing: Standing
    ops: Mapping[int, TimedOut]
    contested: Set[int] = frozenset()


def _stands(name: str, said: Mapping[int, Standing], world_size: int) -> list[_Stand]:
    """How far ranks are on what has this name: one group, or several of which each rank knows its own.

    Args:
        name: Of the group.
        said: By global rank.
        world_size: How many ranks there are at the least.
    """
    everyone = list(said.values())
    desc = next((one.desc for one in everyone if one.desc), "")
    is_one = len({one.group_rank for one in everyone}) == len(everyone)
    has_messages = any(one.timed_out and one.timed_out.op in _MESSAGES for one in everyone)
    is_of_all = name == _FIRST_GROUP or any(one.desc in OF_ALL for one in everyone)
    if is_one and not has_messages:
        members = (
            _everybody(max(*said, world_size - 1) + 1) if is_of_all else _members(said, _size(everyone), world_size)
        )
        group = Group(name, OF_ALL[0] if is_of_all else desc, members)
        everyone = _with_comparable_sizes(everyone)
        ops = _agreed(one.timed_out for one in everyone if one.timed_out)
        contested = {one.timed_out.seq for one in everyone if one.timed_out} - set(ops)
        return [_Stand(group, one, ops, contested) for one in everyone]
    return [
        _Stand(
            Group(name, desc, (one.rank, NOT_KNOWN)), one, {one.timed_out.seq: one.timed_out} if one.timed_out else {}
        )
        for one in everyone
    ]


def _everybody(world_size: int) -> tuple[int, ...]:
    """The members of the group of all; who waits there alone waits for somebody."""
    return tuple(range(world_size)) if world_size > 1 else (0, NOT_KNOWN)


def _agreed(ops: Iterable[TimedOut]) -> dict[int, TimedOut]:
    """By number what all say that the operation is; who does not say it is not taken to be in another one."""
    said: dict[int, list[TimedOut]] = {}
    for op in ops:
        said.setdefault(op.seq, []).append(op)
    return {seq: those[0] for seq, those in said.items() if len({(op.op, op.count, op.out_count) for op in those}) == 1}


def _with_comparable_sizes(everyone: Sequence[Standing]) -> list[Standing]:
    """Without the sizes of an operation of which one line has none: nothing is not a size that differs."""
    unsized = {one.timed_out.seq for one in everyone if one.timed_out and one.timed_out.count < 0}
    return [
        replace(one, timed_out=replace(op, count=-1, out_count=-1))
        if (op := one.timed_out) and op.seq in unsized
        else one
        for one in everyone
    ]


def _size(said: Iterable[Standing]) -> int:
    """How many members a group has at the least: an all-gather puts out what all of them have put in."""
    sizes = [LEAST_IN_GROUP]
    for one in said:
        sizes.append(one.group_rank + 1)
        if (op := one.timed_out) and min(op.count, op.out_count) > 0:
            kind = KINDS.get(op.op)
            part, whole = (op.count, op.out_count) if kind == Kind.ALL_GATHER else (op.out_count, op.count)
            if kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER) and whole % part == 0:
                sizes.append(whole // part)
    return max(sizes)


def _with_one_beyond(known: tuple[int, ...], said: Iterable[Standing], world_size: int) -> tuple[int, ...]:
    """With one more member, if their number is odd and all wait in one operation: groups are even, so one is silent."""
    seqs = {one.timed_out.seq if one.timed_out else -1 for one in said}
    beyond = 2 * known[-1] - known[-2] if len(known) > LEAST_IN_GROUP else 0
    strides = {later - one for one, later in pairwise(known)}
    fits = len(known) % 2 == 1 and len(seqs) == len(strides) == 1 and -1 not in seqs and known[-1] < beyond < world_size
    return (*known, beyond, NOT_KNOWN) if fits else known  # a guess, which is to name nobody


def _members(said: Mapping[int, Standing], size: int, world_size: int) -> tuple[int, ...]:
    """Global ranks by group rank: those that have written, and between them those that are evenly spaced.

    Args:
        said: By global rank.
        size: Of the group, at the least.
        world_size: How many ranks there are at the least.

    Returns:
        Those that have written and one `NOT_KNOWN` for all others, if it is not known who they are.
    """
    by_place = {one.group_rank: rank for rank, one in said.items()}
    places = sorted(by_place)
    known = tuple(by_place[place] for place in places)
    if len(places) == size:
        return _with_one_beyond(known, said.values(), world_size)
    if len(places) < LEAST_IN_LINE or places[-1] + 1 != size or size > MOST_RANK:
        return (*known, NOT_KNOWN)
    stride = (known[-1] - known[0]) // (places[-1] - places[0])
    first = known[0] - stride * places[0]
    if first < 0 or stride < 1 or any(by_place[place] != first + stride * place for place in places):
        return (*known, NOT_KNOWN)
    return tuple(range(first, first + stride * size, stride))


def _dump(rank: int, stands: list[_Stand]) -> Dump:
    rows = [
        _counted(at, seq, one, one.timed_out if one.timed_out and one.timed_out.seq == seq else ops.get(seq))
        for at, (_, one, ops, contested) in enumerate(stands)
        for seq in range(max(one.completed, one.enqueued - MOST_AHEAD, 1), one.enqueued + 1)
        if seq not in contested or (one.timed_out and one.timed_out.seq == seq)
    ]
    return dump_of("watchdog", rank, [stand.group for stand in stands], rows)


def _counted(group: int, seq: int, one: Standing, op: TimedOut | None) -> Counted:
    is_done = seq <= one.completed
    if not op:
        return Counted(group, seq, is_done)
    kind, lists = _MESSAGES.get(op.op) or KINDS.get(op.op, Kind.OTHER), op.op in OF_LISTS
    return Counted(group, seq, is_done, kind, max(op.count, 0), max(op.out_count, 0), lists=lists)
