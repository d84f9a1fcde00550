"""What ranks have issued, held against what they always do."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.library import Struct, fields, loops


class Periods(Struct):
    """`wr_periods`."""

    _fields_, COLUMNS = fields(
        ranks=None, tokens=None, at="i8", length="i8", place="i8", next="i8", untold="i8", periods="u4"
    )


class _Issued(Struct):
    """`wr_issued`."""

    _fields_, COLUMNS = fields(
        count=None, rank="i8", ordinal="i8", tokens="u4", tell_after=None, dealt_with="?",
        leaving="i8", to_tell="i8", leavings=None, to_tells=None,
    )  # fmt: skip


def hold_periods(
    table: Periods, rank: NDArray[np.int64], ordinal: NDArray[np.int64], tokens: NDArray[np.uint32], tell_after: int
) -> tuple[NDArray[np.bool_], list[int], list[int]] | None:
    """Hold operations against the periods of their ranks, which go on by those that are as they say.

    Args:
        table: The periods; places in it are changed.
        rank: Who has issued each, (n,).
        ordinal: Which of its operations it is, (n,).
        tokens: What each is, (n,).
        tell_after: Operations of a rank after which its sequence is to be told of them.

    Returns:
        None if they are not by rank and ordinal, each once; nothing has changed then. Else which of them are dealt
        with; ranks of the table that have issued something else; and ranks whose sequences are to be told.
    """
    n = len(rank)
    dealt_with = np.empty(n, np.bool_)
    leaving, to_tell = np.empty(n, np.int64), np.empty(n, np.int64)
    issued = _Issued.of(
        count=n, rank=rank, ordinal=ordinal, tokens=tokens, tell_after=tell_after, dealt_with=dealt_with,
        leaving=leaving, to_tell=to_tell,
    )  # fmt: skip
    if loops().wr_hold_periods(ctypes.byref(table), ctypes.byref(issued)):
        return None
    return dealt_with, _first(leaving, issued.leavings), _first(to_tell, issued.to_tells)


def _first(values: NDArray[Any], count: int) -> list[int]:
    return values[:count].tolist() if count else []
