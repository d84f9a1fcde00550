"""In which part of an iteration ranks are that all wait for the same operation."""

from __future__ import annotations

import numpy as np

from whichrank.hang.case import Case
from whichrank.model.kinds import Kind, is_message
from whichrank.model.roles import role_of_description


def part_of_wait(case: Case, wait: np.void) -> tuple[str | None, int | None]:
    """Phase and microbatch of an operation that does not end; None each where it is not known.

    Nothing is said of gradients that are reduced: that has a name of its own.

    Args:
        case: Answers for this job.
        wait: Of a rank that is in it.
    """
    store, rank, comm = case.store, int(wait["rank"]), int(wait["comm"])
    role = role_of_description(store.comms.info[comm].desc)
    if role in ("dp", "edp"):
        return None, None
    if not is_message(int(wait["kind"])):
        return store.passes.part_of(rank, store.ordinal(rank)) or (None, None)
    place = int(store.comms.group_ranks(np.array([comm]), np.array([rank]))[0])
    size, peer = int(store.comms.size[comm]), int(wait["peer"])
    if role not in ("pp", None) or place < 0 or peer < 0 or size < 2:
        return None, None
    is_next = place == 0 if size == 2 else (peer - place) % size == 1
    is_sent = int(wait["kind"]) == Kind.SEND
    return store.passes.part_of_message(rank, with_next=is_next, is_sent=is_sent) or (None, None)
