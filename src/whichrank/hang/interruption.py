"""Somebody asks the job to end: Ctrl-C, a scheduler, the removal of a pod. What ends then is no fault of a rank.

The run of a node says the signal that it got (`whichrank.ring.end_signals`). From its time on, ends, exceptions and
failed operations are its consequences, and ranks that wait do so because others are on their way out. What happened
before the signal stays as it was: a death is judged all the same, and an alert that was given stands.

A program may catch the signal and train on. So the interruption is over once all ranks that live have completed
operations that they issued some time after it, or once five minutes have passed and no rank has ended.

A launcher that gets the signal itself passes it on to its ranks, and that is reported too. It does the same when one of
them has died, so such a signal explains waits and no deaths.
"""

from __future__ import annotations

import numpy as np

from whichrank.model.ends import Ends
from whichrank.model.picture import Bools, Picture
from whichrank.store.store import Store

IDLE_S = 30.0
"""A rank that completed nothing for so long before, and waits for nobody, need not have gone on."""
ALL_LIVE_S = 300.0
"""No rank has ended for so long: nobody obeys, or those that are left hang. A last save of state may take minutes."""
PASSED_ON_S = 60.0
"""The same where a launcher asked: it ends by force, within half of this, all that it asked. It may have asked one."""


def have_gone_on(store: Store, picture: Picture, ends: Ends, dead: Bools, before_s: float, after_s: float) -> bool:
    """Have all ranks that live completed operations that they issued after a time?

    Args:
        store: The job.
        picture: The same job now.
        ends: How ranks ended.
        dead: Ranks that have ended or are about to.
        before_s: A rank that was idle before this need not have gone on.
        after_s: The time that counts.
    """
    went_on_s = store.ranks.went_on_s
    idle = went_on_s < before_s - IDLE_S
    idle[picture.waits["rank"]] = False
    idle &= (ends.exception_s == 0) & (ends.closed_s == 0) & (ends.failure_s == 0)  # these are on their way out
    living = picture.present & ~picture.gone & ~dead & ~picture.stopped & ~idle
    return bool(living.any()) and bool((went_on_s[living] > after_s).all())


def is_being_ended(store: Store, picture: Picture) -> bool:
    """Does somebody end the job now, by what its runs and its launchers say? Then waits say nothing.

    It is over if the job has survived it; ranks that have ended meanwhile are got over.
    """
    for interruption in (store.departures.interruption, store.departures.passed_on):
        if not interruption.is_on:
            continue
        ends = store.departures.all_ends()
        left = interruption.consequences(ends)
        is_of_job = interruption is store.departures.interruption
        ended_s = ends.ended_s[left & ends.gone].max(initial=interruption.last_s)
        is_over = picture.now_s > ended_s + (ALL_LIVE_S if is_of_job else PASSED_ON_S) or have_gone_on(
            store, picture, ends, left & (ends.failure_s == 0), interruption.since_s, interruption.until_s
        )
        if is_over and is_of_job:
            store.departures.get_over(np.flatnonzero(left).tolist(), interruption.until_s)
        if is_over:
            interruption.end()
    return store.departures.interruption.is_on or store.departures.passed_on.is_on
