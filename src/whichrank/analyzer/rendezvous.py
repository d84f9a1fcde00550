"""Is a rank stopped while the others meet? Before the first operation, or between two, nobody waits in an operation.

`init_process_group`, `new_group` and the stores behind them wait for other ranks in code of torch itself. The wait-for
graph is empty then, but a stopped process is as hard an evidence as ever, and stacks show that others wait. One of
these may wait for a rank that is only late, so as long as any rank runs its own code the stopped one is not named.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whichrank.analyzer.reasons import in_rendezvous, reason_of
from whichrank.analyzer.state import JobState
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Evidence
from whichrank.model.picture import Picture

ASKED = 16
"""Ranks whose stacks are asked for; of a larger job, the others must do nothing."""
LISTED = 16
HEARD_S = 0.5
"""What was completed before the stop may be heard of so much later."""
IDLE_CPU = 0.1
"""Share of a core below which a process does nothing."""


def stopped_in_rendezvous(
    state: JobState, picture: Picture, want_stacks: Callable[[list[int], float, float], None], again_s: float
) -> Finding | None:
    """A finding that names the stopped ranks, if all that run wait in torch's rendezvous, or in operations.

    Args:
        state: The job.
        picture: The same job now, in which no blocked operation tells who is waited for.
        want_stacks: Asks for stacks of ranks; they come with a later look.
        again_s: Seconds after which a rank may be asked about again.
    """
    stopped = np.flatnonzero(picture.stopped & picture.present)
    running = picture.present & ~picture.gone & ~picture.stopped
    if not len(stopped) or not running.any() or not picture.fresh[running].all():
        return None
    since_s = float(state.ranks.stopped_since_s[stopped].min())
    if state.last_completion_s > since_s + HEARD_S:
        return None  # the others do without it so far
    blocked = np.zeros(picture.world_size, np.bool_)
    blocked[picture.waits["rank"]] = True
    others = np.flatnonzero(running & ~blocked)
    asked = others[:ASKED].tolist()
    want_stacks([r for r in asked if not _looked_at(state, r, since_s)], picture.now_s, again_s)
    waiting = [r for r in asked if in_rendezvous(state, r, since_s)]
    unasked = others[ASKED:]
    if not waiting or len(waiting) < len(asked) or (state.ranks.cpu_share[unasked] > IDLE_CPU).any():
        return None
    told = {int(r): reason_of(state, picture, int(r)) for r in stopped}
    met = f"it has not reached the point where {len(others)} rank{'s wait' if len(others) > 1 else ' waits'}"
    return Finding(
        cause=Cause.NOT_ENTERED,
        fault_class="H1",
        reason=next((t.reason for t in told.values() if t.reason), None),
        culprits=tuple(Blame(r, t.confidence, f"{met}, and {t.words}") for r, t in told.items()),
        victims=tuple(np.flatnonzero(running).tolist()),
        waited_for=frozenset(told),
        onset_s=since_s,
        hard=True,
        evidence=(
            *(fact for t in list(told.values())[:LISTED] for fact in t.evidence),
            Evidence(what="ranks seen in torch's rendezvous", value=len(waiting), where=f"of {len(asked)} looked at"),
        ),
        phase="init" if not (state.ranks.rows["init_ns"][stopped] > 0).all() else None,
        complete=bool(picture.present.all()),
    )


def _looked_at(state: JobState, rank: int, since_s: float) -> bool:
    """Was its stack taken since then?"""
    taken = state.stacks.get(rank)
    return taken is not None and taken[0] + float(state.ranks.offset_s[rank]) >= since_s
