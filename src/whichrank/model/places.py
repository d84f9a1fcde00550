"""Where rows stand in a table, by keys that compare as a whole; rows of many fields, taken and joined cheaply."""

from __future__ import annotations

from collections.abc import Sequence
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


def those(rows: np.ndarray[Any, Any], which: NDArray[np.bool_]) -> np.ndarray[Any, Any]:
    """The rows for which it holds; the same array where it holds for all: rows of many fields are slow to copy."""
    return rows if which.all() else rows[which]


def joined(parts: Sequence[np.ndarray[Any, Any]], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Rows of all parts in a new array: by bytes, since `np.concatenate` goes through the fields of every part.

    Args:
        parts: Arrays of this dtype, of one dimension.
        dtype: Of the rows.
    """
    rows = np.empty(sum(map(len, parts)), dtype)
    content, at = rows.view(np.uint8), 0
    for part in parts:
        of_part = np.ascontiguousarray(part).view(np.uint8)
        content[at : at + len(of_part)] = of_part
        at += len(of_part)
    return rows
