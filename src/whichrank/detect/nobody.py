"""What makes iterations long, and is no rank's fault: all are slower alike, take turns, or a stage has more to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.detect.slow import GREW, Past
from whichrank.model.iterations import Excess, Ints, Window

ALL_GREW: Final = 1.15
"""Times its past from which an iteration is longer than it was, and nobody is to blame."""
EXPLAINED: Final = 2.0
"""An iteration gets longer by no greater share than the computation that slows it; twice that, by what is measured."""


def all_slower(window: Window, past: Past) -> float:
    """Times its past that computation takes on every rank alike, beyond what it may take for what ranks are given.

    1 if it does not, or explains too little.
    """
    grown = past.grown(window)
    factor = float(np.median(grown))
    longer = float(np.median(window.total_s / past.longer(window))) / past.iteration_s
    alike = longer >= ALL_GREW and float(np.quantile(grown, 0.1)) >= GREW
    return factor if alike and longer - 1.0 <= EXPLAINED * (factor - 1.0) else 1.0


def moving(window: Window, excess: Excess) -> float:
    """Share of a usual iteration that is lost to ranks that take turns in being the longest of their position.

    0 if more than half of it is one rank's.
    """
    over_s = np.clip(excess.excess_s, 0.0, window.iteration_s)
    longest = np.argmax(over_s, axis=0)
    lost_s = over_s[longest, np.arange(len(longest))]
    of_rank = np.bincount(longest, lost_s)
    if not lost_s.any() or of_rank.max() > of_rank.sum() / 2:
        return 0.0
    return float(np.median(lost_s)) / window.iteration_s


@dataclass(frozen=True)
class LongStage:
    """A pipeline stage that takes longer than the others.

    Attributes:
        members: Indices of its ranks in the window.
        factor: Times the others.
    """

    members: Ints
    factor: float


def long_stage(window: Window) -> LongStage | None:
    """The pipeline stage with the longest own time, if it is much longer than the others usually are."""
    positions = np.unique(window.position[window.in_pipeline])
    if len(positions) < 2 or not window.in_pipeline.all():
        return None
    middle_s = np.median(window.own_s, axis=1)
    of_stage = np.array([np.median(middle_s[window.position == p]) for p in positions])
    longest = int(np.argmax(of_stage))
    others_s = float(np.median(np.delete(of_stage, longest)))
    if others_s <= 0 or of_stage[longest] < GREW * others_s:
        return None
    members = np.flatnonzero(window.position == positions[longest])
    return LongStage(members, float(of_stage[longest]) / others_s)
