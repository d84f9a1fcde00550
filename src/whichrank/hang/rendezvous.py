"""Is a rank stopped while the others meet? Before the first operation, or between two, nobody waits in an operation.

`init_process_group`, `new_group` and the stores behind them wait for other ranks in code of torch itself. The wait-for
graph is empty then, but a stopped process is as hard an evidence as ever. Who makes a communicator is marked, with all
its members: then these are looked at. Elsewhere stacks show that ranks wait, and not for whom. One of them may wait for
a rank that is only late, so as long as any of those that may be meant runs its own code the stopped one is not named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from whichrank.hang.acting import sampled_at_s
from whichrank.hang.case import LISTED
from whichrank.hang.reasons import in_rendezvous, reason_of
from whichrank.model.clause import Says, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Bools, Picture
from whichrank.store.store import Store

ASKED = 16
"""Ranks whose stacks are asked for; of a larger job, the others must do nothing."""
MET_S = 1.0
"""A communicator that is being made for so long waits for a member."""
HEARD_S = 0.5
"""What was completed before the stop may be heard of so much later."""
IDLE_CPU = 0.1
"""Share of a core below which a process does nothing."""


class Meeting(NamedTuple):
    """A communicator that is being made, or all that the ranks of a job may be waiting for."""

    members: Bools
    """Ranks that are needed for it."""
    meets: Bools
    """Those of them that are marked as waiting for the others."""
    since_s: float
    """When the latest of these came; minus infinite if there is none."""


def stopped_in_rendezvous(
    store: Store, picture: Picture, want_stacks: Callable[[list[int], float, float], None], again_s: float
) -> Finding | None:
    """A finding that names the stopped ranks, if all that run wait in torch's rendezvous, or in operations.

    Args:
        store: The job.
        picture: The same job now, in which no blocked operation says who is waited for.
        want_stacks: Asks for stacks of ranks; they come with a later snapshot.
        again_s: Seconds after which a rank may be asked about again.
    """
    if not (picture.stopped & picture.present).any():
        return None
    everybody, nobody = np.ones(picture.world_size, np.bool_), np.zeros(picture.world_size, np.bool_)
    for meeting in (*meetings(picture), Meeting(everybody, nobody, -np.inf)):
        stopped = picture.stopped & picture.present & meeting.members
        found = _stopped_at(store, picture, meeting, stopped, want_stacks, again_s) if stopped.any() else None
        if found:
            return found
    return None


def meetings(picture: Picture) -> list[Meeting]:
    """The communicators that are being made, and have been for so long that a member must be missing."""
    rows, found = _lasting(picture), []
    rows = rows[(rows["size"] > 1) & (picture.fresh & ~picture.stopped & ~picture.gone)[rows["rank"]]]
    for first, stride, size in np.unique(rows[["first", "stride", "size"]]).tolist():
        here = rows[(rows["first"] == first) & (rows["stride"] == stride) & (rows["size"] == size)]
        members, meets = np.zeros(picture.world_size, np.bool_), np.zeros(picture.world_size, np.bool_)
        members[first : first + stride * size : stride] = True
        meets[here["rank"]] = True
        found.append(Meeting(members, meets & members, float(here["since_s"].max())))
    return found


def _lasting(picture: Picture) -> np.ndarray[Any, Any]:
    """Rows of MEETINGS that have lasted for so long that a member must be missing."""
    rows = picture.meetings
    lasting: np.ndarray[Any, Any] = rows[picture.read_s[rows["rank"]] - rows["since_s"] >= MET_S]
    return lasting


def missing_from_meetings(picture: Picture, ranks: list[int]) -> list[int] | None:
    """Whom these ranks wait for to make communicators; None if none of them makes one.

    A rank that others wait for in an operation may be in `new_group` itself, and wait for a third one.
    """
    if not np.isin(_lasting(picture)["rank"], ranks).any():
        return None
    missing = np.zeros(picture.world_size, np.bool_)
    for meeting in meetings(picture):
        if meeting.meets[ranks].any():
            missing |= meeting.members & ~meeting.meets
    missing[picture.waits["rank"]] = False
    return [int(r) for r in np.flatnonzero(missing)[:LISTED]]


def _stopped_at(
    store: Store, picture: Picture, meeting: Meeting, stopped: Bools,
    want_stacks: Callable[[list[int], float, float], None], again_s: float,
) -> Finding | None:  # fmt: skip
    meets, is_marked = meeting.meets, bool(meeting.meets.any())
    running = picture.present & ~picture.gone & ~picture.stopped & meeting.members
    if not running.any() or not picture.fresh[running].all():
        return None
    missing = picture.gone | ~picture.present if is_marked else picture.gone & picture.present
    if missing[meeting.members].any():
        return None  # they may wait for that one
    since_s = max(float(store.ranks.stopped_since_s[stopped].min()), meeting.since_s)
    if not is_marked and store.last_completion_s > since_s + HEARD_S:
        return None  # the others do without it so far
    blocked = np.zeros(picture.world_size, np.bool_)
    blocked[picture.waits["rank"]] = True
    others = np.flatnonzero(running & ~blocked & ~meets)
    asked = others[:ASKED].tolist()
    want_stacks([r for r in asked if sampled_at_s(store, r) < since_s], picture.now_s, again_s)
    waiting = [r for r in asked if in_rendezvous(store, r, since_s)]
    unasked = others[ASKED:]
    if not (waiting or is_marked) or len(waiting) < len(asked) or (store.ranks.cpu_share[unasked] > IDLE_CPU).any():
        return None
    ranks = np.flatnonzero(stopped).tolist()
    reported = {r: reason_of(store, picture, r) for r in ranks}
    count = len(others) + int(meets.sum())
    met = clause(Says.NOT_REACHED, waiting=count)
    return Finding(
        cause=Cause.NOT_ENTERED,
        fault_class="H1",
        reason=next((t.reason for t in reported.values() if t.reason), None),
        culprits=tuple(Blame(r, t.confidence, (met, *t.clauses)) for r, t in reported.items()),
        victims=tuple(np.flatnonzero(running).tolist()),
        waited_for=frozenset(reported),
        onset_s=since_s,
        hard=True,
        evidence=(
            *(fact for t in list(reported.values())[:LISTED] for fact in t.evidence),
            *_facts(len(waiting), len(others), int(meets.sum())),
        ),
        phase="init" if not (store.ranks.rows["init_ns"][ranks] > 0).all() else None,
        complete=bool(picture.present.all()),
    )


def _facts(seen: int, others: int, meet: int) -> list[Evidence]:
    marked = [Evidence(what="waiting for it to join a communicator", value=meet, unit="ranks")] if meet else []
    polled = Evidence(what="seen in torch's rendezvous", value=seen, unit="ranks",
                      where=f"of {others}; no other was asked" if seen < others else None)  # fmt: skip
    return [*marked, polled] if others else marked
