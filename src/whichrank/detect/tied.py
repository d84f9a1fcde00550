"""Slow ranks of which one may only wait for the other, where no operation is seen: in a store, a file, a lock.

Such a wait looks like computation, and it is as long as what the other rank does, iteration by iteration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from whichrank.detect.slow import Suspect
from whichrank.model.iterations import Floats, Window

LEAST: Final = 6
"""Iterations that say something."""
EQUAL: Final = 0.1
"""Share of the excess by which two own times may differ in the median and be equal."""
NEAR: Final = 0.3
"""The same for two that rise and fall together."""
TOGETHER: Final = 0.5
"""Spread of the difference of two own times, in proportion to their own, below which they rise and fall together."""
APART: Final = 1.2
"""The same, from which each goes its own way; of independent ones it is the root of two."""
ENOUGH: Final = 20
"""Iterations from which it counts whether they rise and fall together at all."""
FEW: Final = 3
"""Suspects up to which it does not count before: among more, some pairs are equal by chance."""
SURE: Final = 3.0
"""Standard errors by which their correlation must be above none then."""
SURER: Final = 4.0
"""The same where there are many pairs."""


def tied(window: Window, suspects: Sequence[Suspect]) -> list[list[Suspect]]:
    """Groups of suspects whose own times are the same.

    Args:
        window: Where they were found.
        suspects: Those of which it is not known why they are slow.
    """
    others = np.delete(np.arange(len(window.ranks)), [suspect.index for suspect in suspects])
    usual_s = np.median(window.own_s[others], axis=0) if len(others) else np.zeros(window.own_s.shape[1])
    groups: list[list[Suspect]] = []
    enough, sure = (ENOUGH, SURE) if len(suspects) <= FEW else (LEAST, SURER)
    for suspect in suspects:
        alike = (g for g in groups if any(_same(window, usual_s, suspect, other, enough, sure) for other in g))
        group = next(alike, None)
        if group is None:
            groups.append([suspect])
        else:
            group.append(suspect)
    return [group for group in groups if len(group) > 1]


def _same(window: Window, usual_s: Floats, one: Suspect, other: Suspect, enough: int, sure: float) -> bool:
    since = max(one.onset, other.onset)
    if window.own_s.shape[1] - since < LEAST:
        return False
    mine_s, theirs_s = (window.own_s[s.index, since:] - usual_s[since:] for s in (one, other))
    apart_s, least_s = float(np.median(np.abs(mine_s - theirs_s))), min(one.excess_s, other.excess_s)
    own_s, between_s = min(_spread(mine_s), _spread(theirs_s)), _spread(mine_s - theirs_s)
    if apart_s <= EQUAL * least_s:
        return between_s < APART * own_s and (len(mine_s) < enough or _together(mine_s, theirs_s, sure))
    return between_s < TOGETHER * own_s and apart_s <= NEAR * least_s


def _together(mine_s: Floats, theirs_s: Floats, sure: float) -> bool:
    """Do they rise and fall together, beyond chance? Pauses count for little."""
    near = [np.clip(own_s - np.median(own_s), -5 * _spread(own_s), 5 * _spread(own_s)) for own_s in (mine_s, theirs_s)]
    scale = float(near[0].std() * near[1].std())
    if not scale > 0:
        return True
    correlation = float(((near[0] - near[0].mean()) * (near[1] - near[1].mean())).mean()) / scale
    return correlation * math.sqrt(len(mine_s)) >= sure


def _spread(values: Floats) -> float:
    return float(np.median(np.abs(values - np.median(values))))
