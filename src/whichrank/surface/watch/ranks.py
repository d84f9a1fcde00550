"""Rows of ranks: who is blocked on what, who is waited for, and which of them a reader wants to see first.

`awaited` is a fact and no blame: somebody has been blocked for two seconds on an operation that this rank has not
entered, while it is blocked on none. Whether it is at fault is for the analyzer to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from whichrank.agent.processes import wait_channel
from whichrank.agent.rank import RankWatch
from whichrank.model.incident import Incident, Spent
from whichrank.model.kinds import Kind, is_collective, is_message
from whichrank.model.signature import kind_name
from whichrank.model.telemetry import CommInfo, WaitChannel
from whichrank.ring.reader import RingSnapshot, Rows
from whichrank.surface.here import last_sign_ns
from whichrank.surface.watch.frame import Mark, Operation, RankNow
from whichrank.surface.watch.words import communicator_name, main_wait_of, printable, state_of, text_of

SORTED_AFTER_S: Final = 1.0
"""Younger waits come and go; rows that changed places for them could not be read."""

_ORDER: Final[dict[Mark, int]] = {"blamed": 0, "suspected": 1, "awaited": 2, "": 4}
_ABNORMAL: Final = 3
_NEVER_NS: Final = 1 << 63


@dataclass(frozen=True)
class Wait:
    """A thread of `rank` that is blocked on operation `counter` of a communicator, or of a pair of it."""

    rank: int
    comm: CommInfo
    kind: int
    counter: int
    peer: int
    """Group rank of root or peer, -1 none."""
    tag: int
    since_ns: int
    age_s: float

    def peer_rank(self) -> int | None:
        """Global rank of the peer of a send or receive, if it is known."""
        is_pair = self.kind in (Kind.SEND, Kind.RECV)
        return self.comm.members[self.peer] if is_pair and 0 <= self.peer < len(self.comm.members) else None


@dataclass(frozen=True)
class OutsideWait:
    """A thread that waits for the answer of a remote call, or for the other members of a new communicator."""

    kind: int
    peer: int | None
    """Global rank that has been called, None if it is not known."""
    age_s: float


@dataclass(frozen=True)
class RankRing:
    """One rank as its ring says it."""

    watch: RankWatch
    waits: tuple[Wait, ...]
    """The oldest first."""
    outside: tuple[OutsideWait, ...] = field(default=(), kw_only=True)
    """The same of waits in no operation."""
    comms: Mapping[int, np.void]
    """Rows of open communicators by id."""
    flight: tuple[Wait, ...] = ()
    """What it has in flight; nobody need be blocked on it."""
    awaited_in: set[int] = field(default_factory=set)
    """Ids of communicators in which somebody waits for it."""
    inside: list[Wait] = field(default_factory=list)
    """Of `flight` what somebody else is blocked on, while it is blocked on nothing."""

    @property
    def rank(self) -> int:
        """Its global rank."""
        return self.watch.rank


def seen(watch: RankWatch, inferred: Rows, infos: Mapping[int, CommInfo]) -> RankRing:
    """What a ring says; waits on communicators that are not known are left out."""
    snapshot = watch.snapshot
    comms = {int(row["comm_id"]): row for row in snapshot.comms if int(row["state"]) == 1}
    if watch.ended_ns:
        return RankRing(watch, (), comms)
    waits: list[Wait] = []
    for rows in (snapshot.waits, inferred):
        ids = watch.comm_ids(rows["comm_slot"], rows["epoch"])
        for comm_id, row in zip(ids.tolist(), rows, strict=True):
            info = infos.get(comm_id)
            if info is not None:
                since_ns = int(row["since_ns"])
                place = int(row["kind"]), int(row["counter"]), int(row["peer"]), int(row["tag"])
                waits.append(Wait(watch.rank, info, *place, since_ns, max(0, snapshot.read_ns - since_ns) / 1e9))
    waits.sort(key=lambda wait: wait.since_ns)
    return RankRing(watch, tuple(waits), comms, outside=_outside(snapshot), flight=_in_flight(watch, infos))


def _outside(snapshot: RingSnapshot) -> tuple[OutsideWait, ...]:
    rows = snapshot.waits[np.isin(snapshot.waits["kind"], (Kind.REMOTE_CALL, Kind.MEETING))]
    return tuple(
        OutsideWait(
            kind=int(row["kind"]),
            peer=int(row["peer"]) if row["kind"] == Kind.REMOTE_CALL and row["peer"] >= 0 else None,
            age_s=max(0, snapshot.read_ns - int(row["since_ns"])) / 1e9,
        )
        for row in rows[np.argsort(rows["since_ns"], kind="stable")]
    )


def _in_flight(watch: RankWatch, infos: Mapping[int, CommInfo]) -> tuple[Wait, ...]:
    """The operations that a rank has in flight, as far as their communicators are known."""
    flight = watch.snapshot.inflight
    if not flight.size:
        return ()
    found = []
    for comm_id, row in zip(watch.comm_ids(flight["comm_slot"], flight["epoch"]).tolist(), flight, strict=True):
        if (info := infos.get(comm_id)) is not None:
            place = int(row["kind"]), int(row["counter"]), int(row["peer"]), int(row["tag"])
            found.append(Wait(watch.rank, info, *place, int(row["t_issue_ns"]), 0.0))
    return tuple(found)


def note_awaited(ranks: Mapping[int, RankRing], awaited: Mapping[int, Set[int]], after_s: float) -> None:
    """Note who is waited for, and what others wait in where a rank is inside of it and waits for nothing.

    Args:
        ranks: All that are here, by rank.
        awaited: Of these, in which communicators others wait for them.
        after_s: Seconds that a wait must have lasted.
    """
    long = [wait for one in ranks.values() for wait in one.waits if wait.age_s >= after_s]
    for rank, one in ranks.items():
        one.awaited_in.update(awaited.get(rank, ()))
        if not one.waits and not one.outside:
            one.inside.extend(own for own in one.flight if any(wait.rank != rank and _meet(own, wait) for wait in long))


def _meet(own: Wait, wait: Wait) -> bool:
    """Is what one rank has in flight the same round as what another one waits in, or the other end of its message?"""
    if own.comm.comm_id != wait.comm.comm_id or own.counter != wait.counter:
        return False
    if is_collective(wait.kind):
        return is_collective(own.kind)
    return is_message(own.kind) and own.kind != wait.kind and own.peer_rank() == wait.rank


def named_ranks(incidents: Iterable[Incident]) -> dict[tuple[int, int | None], Mark]:
    """(rank, pid) -> mark, of all incidents that are not over."""
    marks: dict[tuple[int, int | None], Mark] = {}
    for incident in incidents:
        if incident.status == "recovered":
            continue
        for who in (*incident.culprits, *incident.candidates):
            is_blame = incident.severity == "alert" and who in incident.culprits
            key = (who.rank, who.pid)
            if is_blame or key not in marks:
                marks[key] = "blamed" if is_blame else "suspected"
    return marks


def rank_now(
    one: RankRing, marks: Mapping[tuple[int, int | None], Mark], iteration: int | None, spent: Spent | None
) -> RankNow:
    """The row of one rank."""
    watch, header = one.watch, one.watch.snapshot.header[0]
    mark = marks.get((watch.rank, watch.pid)) or marks.get((watch.rank, None)) or ""
    ended = bool(watch.ended_ns)
    if not mark and one.awaited_in and not ended:
        mark = "awaited"
    all_waits: tuple[Wait | OutsideWait, ...] = (*one.waits, *one.outside)
    wait = all_waits[0] if all_waits else None
    return RankNow(
        rank=watch.rank,
        pid=watch.pid,
        mark=mark,
        state=state_of(watch.process.state, ended, watch.exit_status),
        main_wait="" if ended else main_wait_of(watch.process.state, _main_channel(watch)),
        iteration=iteration,
        ops=int(header["ordinal"]),
        operation=_operation(wait) if wait else None,
        entered=_operation(one.inside[0]) if one.inside and not ended else None,
        blocked_s=wait.age_s if wait else None,
        idle_s=None if wait or ended else _idle_s(one),
        own_s=spent.own_s if spent else None,
        transfer_s=spent.transfer_s if spent else None,
        waiting_s=spent.waiting_s if spent else None,
        in_flight=int(watch.snapshot.inflight.size),
        phase=text_of(header["phase"]),
        started=watch.has_communicators,
        ended=ended,
        fault="its ring was cut short; this is what was read before" if watch.is_cut else "",
    )


def _main_channel(watch: RankWatch) -> WaitChannel:
    return wait_channel(watch.pid, watch.pid, watch.process.state)


def _operation(wait: Wait | OutsideWait) -> Operation:
    if isinstance(wait, OutsideWait):
        return Operation(kind=kind_name(wait.kind), peer=wait.peer)
    name = printable(communicator_name(wait.comm.name, wait.comm.desc))
    return Operation(kind=kind_name(wait.kind), counter=wait.counter, communicator=name, peer=wait.peer_rank())


def _idle_s(one: RankRing) -> float | None:
    latest = last_sign_ns(one.watch)
    return max(0, one.watch.snapshot.read_ns - latest) / 1e9 if latest else None


def interesting_first(rows: Sequence[RankNow], ranks: Mapping[int, RankRing]) -> tuple[RankNow, ...]:
    """Named ones, stopped or dead ones, those that have been blocked longest (by the second), the rest by rank."""

    def key(row: RankNow) -> tuple[int, int, int]:
        order = _ORDER[row.mark]
        if not row.mark and (row.fault or row.state == "stopped" or (row.ended and row.state != "exit 0")):
            order = _ABNORMAL
        waits = ranks[row.rank].waits
        is_long = bool(waits) and waits[0].age_s >= SORTED_AFTER_S
        return order, waits[0].since_ns // 1_000_000_000 if is_long else _NEVER_NS, row.rank

    return tuple(sorted(rows, key=key))
