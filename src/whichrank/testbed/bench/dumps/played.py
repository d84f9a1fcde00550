"""Plays a job through, operation by operation, and writes down what the Flight Recorder of each rank would hold.

A rank's host issues its operations in order, some ahead of its device. The device works on them one after the other: a
collective ends when all members work on the same one, a message when both ends do. Nothing has a duration: what
matters is how far everybody gets before nothing moves any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

BASE_NS: Final = 1_760_000_000_000_000_000
STEP_NS: Final = 200_000
TIMEOUT_MS: Final = 600_000
NEVER: Final = 1 << 60


@dataclass(frozen=True, eq=False)
class Group:
    """A process group; there is one object of each.

    Attributes:
        name: Of each process's own making; several groups may have one.
        desc: What the program says that it is for.
        members: Global ranks by group rank.
        kind: What it is really for: 0 tensors, 1 data, 2 pipeline, -1 all ranks. No dump says it.
    """

    name: str
    desc: str
    members: tuple[int, ...]
    kind: int = -1


@dataclass(frozen=True)
class Op:
    """One operation of a rank.

    Attributes:
        group: Where.
        kind: As the recorder names it, without the backend: `all_reduce`, `send`, ...
        count: Elements.
        peer: Group rank of the other end of a message.
    """

    group: Group
    kind: str
    count: int
    peer: int = -1

    @property
    def is_message(self) -> bool:
        """Or a collective."""
        return self.kind in ("send", "recv")


Unit = tuple[Op, ...]
"""What a device works on at once: one operation, or a batch of messages."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a job.

    Attributes:
        host_stops: By rank, the number of units after which its host issues no more.
        device_stops: By rank, the number of units after which no end is seen on it.
        works_on: Units that such a device still does its part in, unseen.
        unsent: Ranks whose dump is missing.
    """

    host_stops: dict[int, int] = field(default_factory=dict)
    device_stops: dict[int, int] = field(default_factory=dict)
    works_on: int = 8
    unsent: frozenset[int] = frozenset()


@dataclass
class Played:
    """A job that stands still.

    Attributes:
        programs: By rank, its units in order.
        issued: By rank, how many units its host has issued.
        done: By rank, how many units are complete as far as it knows.
    """

    programs: list[list[Unit]]
    issued: list[int]
    done: list[int]


def play(programs: list[list[Unit]], fault: Fault, ahead: int = 12) -> Played:
    """Go on until nothing moves.

    Args:
        programs: By rank, its units in order.
        fault: What is wrong.
        ahead: Units that a host issues beyond what its device has completed.
    """
    size = len(programs)
    place = [0] * size
    seq: list[dict[Group, int]] = [{} for _ in range(size)]

    stop = [_end_of_device(programs, fault, rank) for rank in range(size)]

    def current(rank: int) -> Unit:
        return programs[rank][place[rank]] if place[rank] < stop[rank] else ()

    def fits(rank: int, op: Op, agreed: dict[Op, bool]) -> bool:
        if op.is_message:
            other = op.group.members[op.peer]
            me = op.group.members.index(rank)
            kind = "recv" if op.kind == "send" else "send"
            return Op(op.group, kind, op.count, me) in current(other)
        if op not in agreed:  # all of its members issue it as their operation of the same number
            numbers = {seq[r].get(op.group, 0) if op in current(r) else -1 for r in op.group.members}
            agreed[op] = len(numbers) == 1 and -1 not in numbers
        return agreed[op]

    moved = set(range(size))
    while moved:
        rank = moved.pop()
        unit = current(rank)
        agreed: dict[Op, bool] = {}
        if not unit or not all(fits(rank, op, agreed) for op in unit):
            continue
        partners = {rank}.union(*((op.group.members[op.peer],) if op.is_message else op.group.members for op in unit))
        if not all(all(fits(r, op, agreed) for op in current(r)) for r in partners):
            continue
        for r in partners:
            for op in current(r):
                if not op.is_message:
                    seq[r][op.group] = seq[r].get(op.group, 0) + 1
            place[r] += 1
        moved |= partners
    done = [min(place[r], fault.device_stops.get(r, NEVER)) for r in range(size)]
    host = [min(len(programs[r]), fault.host_stops.get(r, NEVER)) for r in range(size)]
    return Played(programs, [min(host[r], max(done[r] + ahead, place[r])) for r in range(size)], done)


def _end_of_device(programs: list[list[Unit]], fault: Fault, rank: int) -> int:
    """How far the device of a rank may get."""
    device = fault.device_stops.get(rank, NEVER) + fault.works_on
    return min(len(programs[rank]), fault.host_stops.get(rank, NEVER), device)


@dataclass(frozen=True)
class Style:
    """How a recorder was set.

    Attributes:
        name: In the table.
        ring: Entries that it keeps.
        only_active: Only what is not complete is dumped.
        has_status: The dump has the status of each group (versions from 2.3 on).
        version: Of the dump.
    """

    name: str
    ring: int = 2000
    only_active: bool = False
    has_status: bool = True
    version: str = "2.10"


def dump_of(played: Played, rank: int, groups: Sequence[Group], style: Style) -> dict[str, Any]:
    """What the recorder of one rank would hold."""
    mine = [group for group in groups if rank in group.members]
    number = {group: at for at, group in enumerate(mine)}
    seq, messages, ops = (dict.fromkeys(mine, 0) for _ in range(3))
    status = {group: [0, 0] for group in mine}
    entries: list[dict[str, Any]] = []
    for at, unit in enumerate(played.programs[rank][: played.issued[rank]]):
        is_done = at < played.done[rank]
        is_batch = len(unit) > 1
        for op in unit:
            ops[op.group] += 1
            if not op.is_message:
                seq[op.group] += 1
            elif op is unit[0]:
                messages[op.group] += 1
            now = messages[op.group] if op.is_message else seq[op.group]
            status[op.group][0] = now
            if is_done:
                status[op.group][1] = now
            entries.append(_entry(op, rank, number, seq, messages, ops, len(entries), is_done and not is_batch))
        if is_batch:
            whole = replace(unit[0], kind="coalesced", count=0, peer=-1)
            entries.append(_entry(whole, rank, number, seq, messages, ops, len(entries), is_done) | {"is_p2p": True})
    kept = entries[-style.ring :]
    if style.only_active:
        kept = [entry for entry in kept if entry["state"] != "completed"]
    dump: dict[str, Any] = {
        "version": style.version,
        "nccl_version": "2.27.3",
        "pg_config": {
            group.name: {"name": group.name, "desc": group.desc, "ranks": str(list(group.members))} for group in mine
        },
        "entries": kept,
    }
    if style.has_status:
        dump["pg_status"] = {
            str(number[group]): {
                "last_enqueued_collective": issued, "last_started_collective": -1, "last_completed_collective": done,
            }
            for group, (issued, done) in status.items()
        }  # fmt: skip
    return dump


def _entry(
    op: Op, rank: int, number: dict[Group, int], seq: dict[Group, int], messages: dict[Group, int],
    ops: dict[Group, int], record: int, is_done: bool,
) -> dict[str, Any]:  # fmt: skip
    created_ns = BASE_NS + record * STEP_NS + rank * 1000
    me = op.group.members.index(rank)
    path = {"send": f" {me}->{op.peer}", "recv": f" {me}<-{op.peer}"}.get(op.kind, "")
    return {
        "record_id": record,
        "pg_id": number[op.group],
        "process_group": (op.group.name, op.group.desc),
        "collective_seq_id": seq[op.group],
        "p2p_seq_id": messages[op.group],
        "op_id": ops[op.group],
        "profiling_name": f"nccl:{op.kind}{path}",
        "time_created_ns": created_ns,
        "input_sizes": [[op.count]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[op.count]],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if is_done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": created_ns + STEP_NS // 2 if is_done else None,
        "retired": is_done,
        "timeout_ms": TIMEOUT_MS,
        "is_p2p": op.is_message,
        "frames": [{"name": "train", "filename": "train.py", "line": 10 + record % 50}],
    }
