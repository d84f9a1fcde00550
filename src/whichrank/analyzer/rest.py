"""Until when a job needs no look, if nothing comes: nobody is late, and nobody can be before that time.

What a snapshot has shown changes when batches come, and otherwise only because time passes: a wait gets old enough to
count, an agent falls silent, slowness is due. The earliest of these is known. Operations that went well, and nothing
else, change it only where they make somebody suspect something. While a wait counts, or anything is
suspected, open, or not known yet, the job is looked at in each tick.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whichrank.analyzer.hangs import ASK_AFTER_S
from whichrank.analyzer.parts import Parts
from whichrank.hang.silence import ASK_AT_SHARE
from whichrank.model.picture import Picture
from whichrank.slow.slowness import Slowness
from whichrank.store.store import FRESH_S
from whichrank.transport.reach import UNUSUAL_S

MOST_S: Final = 5.0
"""Seconds for which a job is not looked at, however well it is."""


def rests_until_s(parts: Parts, slowness: Slowness, picture: Picture, now_s: float) -> float:
    """The time until which nothing can change by itself; now, if that is not known.

    Args:
        parts: What the analyzer is made of.
        slowness: Of the same job.
        picture: The snapshot that was looked at.
        now_s: When that was.
    """
    store = parts.store
    counts_s = float(picture.waits["since_s"].min(initial=np.inf)) + ASK_AFTER_S
    if counts_s <= now_s or not (is_at_ease(parts, slowness) and _all_is_well(picture)):
        return now_s
    silent_s = min(float(store.spoke_s().min(initial=np.inf)) + FRESH_S, store.paths.heard_longest_ago_s + UNUSUAL_S)
    still_s = max(store.last_completion_s, store.first_seen_s) + ASK_AT_SHARE * parts.config.hang_timeout_s
    return min(now_s + MOST_S, counts_s, silent_s, still_s, slowness.due_s)


def is_at_ease(parts: Parts, slowness: Slowness) -> bool:
    """Is nothing suspected, open, or about to be?"""
    store = parts.store
    return (
        parts.policy.is_at_ease
        and not parts.ledger.has_open
        and not store.rounds.are_in_doubt
        and not store.sequences.edited
        and not parts.case.peers.are_in_doubt
        and not store.departures.are_expected
        and not slowness.is_in_doubt
    )


def _all_is_well(picture: Picture) -> bool:
    """Does every rank live and run, so that only operations are waited for?"""
    return (
        bool((picture.present & picture.fresh).all())
        and not (picture.gone | picture.stopped).any()
        and not (len(picture.remote) or len(picture.meetings))
    )
