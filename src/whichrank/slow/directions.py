"""Which passes a slow link of a pipeline holds up: forward ones go to the next stage, backward ones back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whichrank.model.links import SlowLink
from whichrank.model.roles import role_of_description
from whichrank.store.store import Store


def phase_of_links(store: Store, links: Sequence[SlowLink]) -> str | None:
    """Forward or backward, if all of these links join neighbouring stages, and that way; None otherwise.

    Args:
        store: The job.
        links: Slow ones.
    """
    found = {_phase_of(store, link) for link in links}
    return found.pop() if len(found) == 1 else None


def _phase_of(store: Store, link: SlowLink) -> str | None:
    comms = store.comms
    for comm in (np.searchsorted(comms.at, np.flatnonzero(comms.member_rank == link.src), side="right") - 1).tolist():
        members = comms.members_of(comm)
        if link.dst not in members:
            continue
        if role_of_description(comms.info[comm].desc) == "pp":  # a role that is guessed may be that of a ring
            step = members.index(link.dst) - members.index(link.src)
            # Of two, each is before and behind the other where a rank holds several stages.
            return {1: "forward", -1: "backward"}.get(step) if len(members) > 2 else None
    return None
