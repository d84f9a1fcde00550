"""Rows of communicators: how far their members are, who is behind, and who waits in them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whichrank.model.roles import infer_role
from whichrank.model.telemetry import CommInfo
from whichrank.surface.watch.frame import CommunicatorNow
from whichrank.surface.watch.ranks import SORTED_AFTER_S, RankRing
from whichrank.surface.watch.words import communicator_name, printable


def communicators_now(
    ranks: Mapping[int, RankRing],
    infos: Mapping[int, CommInfo],
    kinds: Mapping[int, Mapping[int, int]],
    world_size: int,
) -> tuple[CommunicatorNow, ...]:
    """One row per communicator that a rank here has open; those that somebody waits in first."""
    of: dict[int, list[RankRing]] = {}
    for one in ranks.values():
        for comm_id in one.comms:
            of.setdefault(comm_id, []).append(one)
    rows = [
        _row(comm_id, members, infos[comm_id], kinds.get(comm_id, {}), world_size)
        for comm_id, members in of.items()
        if comm_id in infos
    ]
    return tuple(sorted(rows, key=_interest))


def _interest(row: CommunicatorNow) -> tuple[bool, bool, bool, str, tuple[int, ...]]:
    """First where somebody is waited for, then where members are apart and wait, then where they only wait."""
    waits = row.longest_wait_s >= SORTED_AFTER_S
    return not (waits and row.awaited), not (waits and row.behind), not waits, row.name, row.members


def _row(
    comm_id: int, members: list[RankRing], info: CommInfo, kinds: Mapping[int, int], world_size: int
) -> CommunicatorNow:
    issued = {one.rank: int(one.comms[comm_id]["issued"]) for one in members}
    fewest, most = min(issued.values()), max(issued.values())
    waits = [wait for one in members for wait in one.waits if wait.comm.comm_id == comm_id]
    role, sure = infer_role(info.desc, info.members, world_size, kinds)
    return CommunicatorNow(
        id=f"{comm_id:016x}",
        name=printable(communicator_name(info.name, info.desc)),
        role=role,
        role_confidence=sure if role else None,
        size=info.size,
        members=tuple(info.members),
        here=len(members),
        issued_min=fewest,
        issued_max=most,
        p2p=max(_p2p(one, comm_id) for one in members),
        behind=tuple(sorted(rank for rank, n in issued.items() if n == fewest)) if fewest < most else (),
        waiting=len({wait.rank for wait in waits}),
        longest_wait_s=max((wait.age_s for wait in waits), default=0.0),
        awaited=tuple(sorted(one.rank for one in members if comm_id in one.awaited_in)),
    )


def _p2p(one: RankRing, comm_id: int) -> int:
    pairs = one.watch.snapshot.pairs
    if not pairs.size:
        return 0
    ids = one.watch.comm_ids(pairs["comm_slot"], pairs["epoch"])
    return int(pairs["issued"][ids == np.uint64(comm_id)].sum())
