"""Where rows stand in a table, by keys that compare as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def places(wanted: NDArray[Any], among: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each wanted key, -1 nowhere.

    Args:
        wanted: Keys, (n,).
        among: Keys of the table, (m,), each once, in any order.
    """
    if not len(among):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(among, kind="stable")
    at = np.minimum(np.searchsorted(among[order], wanted), len(among) - 1)
    return np.where(among[order][at] == wanted, order[at], -1)
