"""Where rows stand in a table, by keys that compare as a whole; rows of many fields, taken and joined cheaply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def places_in_sorted(wanted: NDArray[Any], among: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each wanted key, -1 nowhere.

    Args:
        wanted: Keys, (n,).
        among: Keys of the table, (m,), each once, ascending.
    """
    if not len(among):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(among, wanted), len(among) - 1)
    return np.where(among[at] == wanted, at, -1)


def values_of(wanted: NDArray[Any], keys: NDArray[Any], values: NDArray[Any], missing: Any) -> NDArray[Any]:
    """The value of each wanted key.

    Args:
        wanted: Keys, (n,).
        keys: All that have a value, (m,), each once, ascending.
        values: Of each of them.
        missing: For those that have none: one value, or (n,).
    """
    at = places_in_sorted(wanted, keys)
    return np.where(at >= 0, values[at], missing) if len(keys) else np.full(len(wanted), missing, values.dtype)


def places(wanted: NDArray[Any], among: NDArray[Any]) -> NDArray[np.int64]:
    """As `places_in_sorted`, of keys in any order."""
    order = np.argsort(among, kind="stable")
    at = places_in_sorted(wanted, among[order])
    at[at >= 0] = order[at[at >= 0]]
    return at


def starts(values: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of equal values begins, (n,)."""
    return np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1]))[: len(values)])


def those(rows: np.ndarray[Any, Any], which: NDArray[np.bool_]) -> np.ndarray[Any, Any]:
    """The rows for which it holds; the same array where it holds for all."""
    return rows if which.all() else taken(rows, which)


def taken(rows: np.ndarray[Any, Any], at: NDArray[Any]) -> np.ndarray[Any, Any]:
    """Some rows, by their places or by a mask, in a new array: ten times as fast as `rows[at]` of many fields."""
    some: np.ndarray[Any, Any] = _plain(rows)[at].view(rows.dtype)
    return some


def put(rows: np.ndarray[Any, Any], at: Any, values: np.ndarray[Any, Any]) -> None:
    """Set some rows, by their places, to rows of the same dtype: ten times as fast as `rows[at] = values`."""
    _plain(rows)[at] = _plain(values)


def _plain(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same memory as rows without fields: NumPy copies those with fields field by field."""
    return rows.view((np.void, rows.dtype.itemsize)) if rows.dtype.names else rows


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
