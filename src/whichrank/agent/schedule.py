"""How an observer gets its CPU time: behind those whom it observes."""

from __future__ import annotations

import contextlib
import os


def let_others_first() -> None:
    """Never push a training thread off its core when there is something to see.

    Under SCHED_BATCH (sched(7)) a thread that wakes up takes a free core at once, and a busy one only at the next tick
    of the scheduler, some milliseconds later; its share stays the same. What it starts does as it does.
    Whoever has chosen another policy for us keeps it.
    """
    with contextlib.suppress(OSError, AttributeError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
