"""Loads the loops, and hands columns to them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from whichrank.native import COLUMNS, load


class Struct(ctypes.Structure):
    """A struct of the library: numbers, and where columns begin."""

    COLUMNS: ClassVar[dict[str, np.dtype[Any]]]
    """Its fields that are columns, and of which type each is; all others are numbers."""
    _kept: dict[str, Any]

    @classmethod
    def of(cls, **fields: NDArray[Any] | int | None) -> Self:
        """With these numbers and columns; it keeps the columns for as long as it lives.

        Raises:
            TypeError: A column is of another type than the loops take it to be, or its values do not follow each other.
        """
        struct = cls()
        for name, value in fields.items():
            setattr(struct, name, address(value, cls.COLUMNS[name]) if isinstance(value, np.ndarray) else value)
        struct._kept = fields
        return struct


def fields(**of: str | None) -> tuple[list[tuple[str, Any]], dict[str, np.dtype[Any]]]:
    """The fields of a struct in their order, and those that are columns.

    Args:
        of: By name: the type of a column, or None of a number without a sign.
    """
    ctypes_of = [(name, ctypes.c_size_t if dtype is None else ctypes.c_void_p) for name, dtype in of.items()]
    return ctypes_of, {name: np.dtype(dtype) for name, dtype in of.items() if dtype is not None}


def address(column: NDArray[Any], dtype: np.dtype[Any]) -> int:
    """Where a column begins in memory.

    Raises:
        TypeError: It is of another type, or its values do not follow each other.
    """
    if column.dtype != dtype or not column.flags.c_contiguous:
        raise TypeError(f"expected a column of {dtype} without gaps, not of {column.dtype}")
    return int(column.__array_interface__["data"][0])


def addresses(*columns: tuple[NDArray[Any], Any]) -> list[int]:
    """Of several, each with its type."""
    return [address(column, np.dtype(of)) for column, of in columns]


@cache
def loops() -> ctypes.CDLL:
    """The library, loaded once per process.

    Raises:
        NativeLibraryError: It is not installed, or does not load on this machine.
    """
    library = load(COLUMNS)
    library.wr_find_comms.restype = ctypes.c_size_t
    library.wr_signatures.argtypes = (ctypes.c_size_t, *[ctypes.c_void_p] * 8)
    library.wr_take_apart.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    library.wr_find_comms.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_void_p] * 5)
    library.wr_find_runs.argtypes = (ctypes.c_void_p,)
    two = (ctypes.c_size_t, ctypes.c_size_t)
    library.wr_count_waits.argtypes = (ctypes.c_size_t, *[ctypes.c_void_p] * 2, *two, *[ctypes.c_void_p] * 2)
    library.wr_count_kinds.argtypes = (ctypes.c_size_t, *[ctypes.c_void_p] * 2, *two, ctypes.c_void_p)
    library.wr_hold_periods.argtypes = (ctypes.c_void_p,) * 2
    library.wr_hold_rounds.argtypes = (ctypes.c_void_p,) * 3
    library.wr_find_iterations.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_void_p] * 3)
    library.wr_sum_iterations.argtypes = (ctypes.c_void_p,)
    library.wr_prepare_words.argtypes = (ctypes.c_void_p,)
    library.wr_lines_with.restype = ctypes.c_size_t
    library.wr_lines_with.argtypes = (
        ctypes.c_void_p,
        ctypes.c_char_p,
        *two[:1],
        ctypes.c_void_p,
        *two[:1],
        *[ctypes.c_void_p] * 3,
    )
    return library
