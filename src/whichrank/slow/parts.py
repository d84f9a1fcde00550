"""In which part of its iterations a suspect is slow, held against its sound peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whichrank.detect.slow import Suspect
from whichrank.locate.critical_path import Course
from whichrank.locate.phases import SlowPart, slow_part
from whichrank.model.iterations import Window
from whichrank.store.store import Store


def part_of(
    store: Store, window: Window, course: Course, suspect: Suspect, since: int, slow: Sequence[int],
    passes: np.ndarray[Any, Any],
) -> SlowPart | None:  # fmt: skip
    """Where it is slow; None where that is not known, as of ranks that make no optimizer steps.

    Without these, iterations begin with some operation, which may be in the middle of a backward pass.

    Args:
        store: The job.
        window: The iterations that this rests on.
        course: Some of them.
        suspect: The rank.
        since: The first iteration of the course in which it is slow.
        slow: All ranks that are slow.
        passes: Rows of PASS, sorted by rank and begin.
    """
    index, against_peers = suspect.index, suspect.against == "peers"
    peers = window.peers_of(index) if against_peers else np.zeros(0, np.int64)
    sound = peers[~np.isin(window.ranks[peers], slow)]
    makes_steps = store.sequences.steps.count(int(window.ranks[index])) > 0
    if not makes_steps or (against_peers and not len(sound)):
        return None
    return slow_part(
        course, index, sound, passes, since, suspect.excess_s, comes_and_goes=suspect.comes_and_goes,
        is_pipeline=bool(window.in_pipeline[index] and window.ring[index] < 0),
    )  # fmt: skip
