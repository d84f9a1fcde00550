"""What is known of the job now, for those who act on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.own_times import LEAST, Iterations
from whichrank.locate.comparable import LongGroup
from whichrank.model.job_now import Group, JobNow, Lately, Stepped
from whichrank.store.store import Store

LATELY_S: Final = 5.0
"""Seconds of iterations that say what ranks do lately."""


def job_now(store: Store, long_groups: Sequence[LongGroup]) -> JobNow:
    """Of the ranks that live.

    Args:
        store: The job.
        long_groups: Communicators that take longer than comparable ones, the longest first.
    """
    living = store.ranks.present & ~store.ranks.have_ended()
    ranks = np.flatnonzero(living)
    names = store.agent_names()
    agents = {int(rank): names[int(store.ranks.agent[rank])] for rank in ranks if store.ranks.agent[rank] >= 0}
    groups: dict[tuple[int, ...], Group] = {}
    for comm, info in enumerate(store.comms.info):
        members = store.comms.members_of(comm)
        if len(members) > 1 and set(members) <= agents.keys():
            # Of those with the same members the latest one: others may be closed.
            groups[members] = Group(info.comm_id, info.name, members, info.backend)
    return JobNow(
        tuple(ranks.tolist()),
        agents,
        tuple(groups.values()),
        store.iteration_s(),
        store.sequences.marks.beginnings(ranks),
        _stepped(store, ranks),
        store.paths.carried(),
        tuple(store.comms.members_of(group.comm) for group in long_groups),
    )


def lately(store: Store, iterations: Iterations) -> Lately | None:
    """The latest iterations that all living ranks have ended; None where there are too few.

    Args:
        store: The job.
        iterations: Of it.
    """
    living = np.flatnonzero(store.ranks.present & ~store.ranks.have_ended())
    window = iterations.window(living, LATELY_S, LEAST)
    return Lately(window.ranks, window.iteration, window.own_s, window.total_s) if window else None


def _stepped(store: Store, ranks: NDArray[np.int64]) -> Stepped | None:
    latest = store.sequences.steps.latest(ranks)
    if not latest.number.any():
        return None
    at_s = latest.at_ns / 1e9 + store.ranks.offset_s[ranks]
    lasted_ns = latest.lasted_ns[latest.lasted_ns > 0]
    return Stepped(latest.number, at_s, float(np.median(lasted_ns)) / 1e9 if len(lasted_ns) else 0.0)
