"""Nothing completes anywhere, and no operation is blocked: a job that never started, or that waits outside of c10d.

Ranks that are in `init_process_group` or in a store are in no operation yet, so the wait-for graph is empty. What is
left are rings that are missing, rings without a communicator, and stacks.

Silence alone is no hang: a job that loads data before `init_process_group`, uploads a model after its last operation or
leaves its interpreter slowly is as silent. So a word is said only where somebody is known to wait: in torch's own
rendezvous code, by the stack, or through operations in flight (NCCL, where the host never blocks). A name asks for
more: most of the world waits, nobody is ending, and each rank that is not there is seen in code of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from whichrank.detect.hang import STEADY_S
from whichrank.hang.acting import acting_stack
from whichrank.hang.case import LISTED
from whichrank.hang.reasons import in_rendezvous, reason_of
from whichrank.hang.rendezvous import meetings
from whichrank.model.clause import Says, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Picture
from whichrank.store.store import Store

ASK_AT_SHARE = 0.5
"""Stacks are asked for from this share of the hang timeout on, so that they are there when it ends."""
STACKS_S = 5.0
"""How much longer the verdict waits for stacks that have not come."""
_TORCH = re.compile(r"\btorch/(?!utils/data/)")
_STANDARD = re.compile(r"\(<|\(\S*/lib(?:64)?/python3[^/]*/(?!site-packages/|dist-packages/)")
_COMES_OR_GOES = re.compile(
    r"importlib|_run_exitfuncs|_exit_function|^_shutdown \(|\batexit\b|multiprocessing/util\.py"
)
"""A process that imports or ends."""


def silent_job(
    store: Store,
    picture: Picture,
    hang_timeout_s: float,
    busy_factor: float,
    want_stacks: Callable[[list[int], float], None],
) -> Finding | None:
    """A finding when no operation has completed anywhere for the hang timeout, and somebody is known to wait.

    One that names a rank comes earlier, by what it must stand before it is reported.

    Args:
        store: The job.
        picture: The same job now.
        hang_timeout_s: Seconds of silence.
        busy_factor: How many times that while a rank computes.
        want_stacks: Asks for stacks of ranks; they come with a later snapshot.
    """
    alive = picture.present & ~picture.gone & picture.fresh
    since_s = max(store.last_completion_s, store.first_seen_s)
    silent_s = picture.now_s - since_s
    if not alive.any():
        return None
    most_s = busy_factor * hang_timeout_s
    if store.ranks.compute(alive).any():
        hang_timeout_s = most_s  # a start on a loaded machine, a long step
    if silent_s < ASK_AT_SHARE * hang_timeout_s:
        return None
    if bool((picture.waits["since_s"] > since_s).any()) and picture.now_s - float(picture.waits["since_s"].max()) < 1.0:
        return None
    ranks = [int(r) for r in np.flatnonzero(alive)]
    polled = [r for r in ranks if acting_stack(store, r) is not None]
    want_stacks([r for r in ranks if r not in polled][:64], picture.now_s)
    if silent_s < hang_timeout_s - STEADY_S or (len(polled) < len(ranks) and silent_s < hang_timeout_s + STACKS_S):
        return None
    waiting = [r for r in ranks if in_rendezvous(store, r)]
    flying = _in_flight(store, picture, ranks)
    if not waiting and not flying:
        return None
    missing = [int(r) for r in np.flatnonzero(~picture.present)]
    started = store.ranks.rows["init_ns"] > 0
    out = _missing_from(store, picture, waiting, [r for r in ranks if r not in waiting]) if waiting else []
    blames = _absent(store, picture, waiting, out, missing, flying)
    idle_s = picture.now_s - store.last_computed_s
    if not blames and (silent_s < hang_timeout_s or (idle_s < hang_timeout_s and silent_s < most_s)):
        return None  # they have come to where they wait only lately
    reason = reason_of(store, picture, out[0]).reason if out and blames else None
    return Finding(
        cause=Cause.NOT_ENTERED if blames else Cause.UNKNOWN,
        fault_class="H1" if blames else None,
        reason=reason,
        culprits=tuple(blames[:LISTED]),
        candidates=() if blames else _candidates(waiting, [r for r in out if r in polled], missing, ranks),
        victims=tuple(r for r in ranks if r in flying or r in waiting),
        waited_for=frozenset(b.rank for b in blames),
        onset_s=since_s,
        evidence=(
            Evidence(what="time without any completed operation", value=round(silent_s, 1), unit="s"),
            Evidence(what="seen", value=len(ranks), unit="ranks", where=f"of {picture.world_size}"),
            Evidence(what="waiting in the rendezvous or a store", value=len(waiting), unit="ranks"),
            Evidence(what="operations in flight", value=len(flying), unit="ranks"),
        ),
        phase="init" if not started[alive].all() or missing else "data",
        complete=not missing,
    )


def _missing_from(store: Store, picture: Picture, waiting: list[int], out: list[int]) -> list[int]:
    """Those of the ranks that are not in the rendezvous that may be waited for there."""
    met = meetings(picture)
    if met and np.logical_or.reduce([meeting.meets for meeting in met])[waiting].all():
        members = np.logical_or.reduce([meeting.members for meeting in met])
        return [r for r in out if members[r]]
    has_met = store.ranks.rows["init_ns"] > 0
    return [r for r in out if not has_met[r]] if not has_met[waiting].any() else out


def _absent(
    store: Store, picture: Picture, waiting: list[int], out: list[int], missing: list[int], flying: set[int]
) -> list[Blame]:
    """Ranks to name: a strict minority, surely not on its way, while most of the world waits in the rendezvous."""
    absent = out or missing
    if not absent or (out and missing) or 2 * len(waiting) <= picture.world_size:
        return []
    if _any_leaves(store, picture):
        return []  # the job ends or is started again: who is not there is its victim
    if missing:
        why = (clause(Says.NEVER_SEEN), clause(Says.OTHERS_IN_RENDEZVOUS))
        return [Blame(r, 0.7, why) for r in missing]
    if any(r in flying or not _in_own_code(store, r) for r in out):
        return []
    behind = clause(Says.NOT_REACHED, waiting=len(waiting))
    return [Blame(r, 0.9, (behind, *reason_of(store, picture, r).clauses)) for r in out]


def _candidates(waiting: list[int], out: list[int], missing: list[int], ranks: list[int]) -> tuple[Blame, ...]:
    unseen = [Blame(r, 0.1, (clause(Says.NEVER_SEEN),)) for r in missing]
    if waiting:
        return tuple([*(Blame(r, 0.1, (clause(Says.NOT_IN_RENDEZVOUS),)) for r in out), *unseen][:LISTED])
    return tuple((unseen or [Blame(r, 0.1, (clause(Says.BLOCKED_NOWHERE),)) for r in ranks])[:LISTED])


def _in_flight(store: Store, picture: Picture, ranks: list[int]) -> set[int]:
    """Living ranks that do not end, with operations that were issued and have neither completed nor failed."""
    row = store.ranks.rows
    flying = set(picture.ops["rank"][~picture.ops["failed"]].tolist())
    return {r for r in ranks if r in flying and not row["closed_ns"][r] and not row["exception_ns"][r]}


def _any_leaves(store: Store, picture: Picture) -> bool:
    """Has a rank ended, is it about to, or was only a part of the ranks started again?"""
    row = store.ranks.rows
    ending = picture.gone | (picture.present & ((row["closed_ns"] > 0) | (row["exception_ns"] > 0)))
    return bool(ending.any()) or len(np.unique(row["restart_count"][picture.present])) > 1


def _in_own_code(store: Store, rank: int) -> bool:
    """Does the thread that trains stand in code that is neither torch's nor the interpreter's coming and going?"""
    stack = acting_stack(store, rank)
    if stack is None or any(_COMES_OR_GOES.search(frame) for frame in stack.frames):
        return False
    innermost = next((frame for frame in stack.frames if not _STANDARD.search(frame)), None)
    return innermost is not None and not _TORCH.search(innermost)
