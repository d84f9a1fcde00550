"""In which iterations operations are, and what those of an iteration add up to."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.library import Struct, addresses, fields, loops

Ints = NDArray[np.int64]
Numbers = NDArray[np.uint64]


class Table(Struct):
    """`wr_iterations`."""

    _fields_, COLUMNS = fields(ranks=None, iterations=None, first="i8", begin="i8", end="i8")


class _Sums(Struct):
    """`wr_sums`."""

    _fields_, COLUMNS = fields(
        count=None, iterations=None, comms=None, iteration="i8", rank="i8", comm="i8", peer="i4", stage="u2",
        offset="u2", kind="u1", sort="u8", messages="u8", pattern="u8", turned="u8", roots="u8", talks="u8",
        addressed=None,
    )  # fmt: skip


@dataclass(frozen=True)
class Sums:
    """What the operations of each iteration add up to, modulo 2^64.

    Attributes:
        messages: How many messages there are, (iterations,), as the others.
        pattern: All operations, by the sort of their communicator, their kind and the stage of the rank.
        turned: The same, but messages by the offset of their peer where that is known.
        roots: Collectives of which the rank is the root; 0 if there are none.
        talks: Messages of which the other end is known, by that.
        addressed: How many messages these are in all.
    """

    messages: Numbers
    pattern: Numbers
    turned: Numbers
    roots: Numbers
    talks: Numbers
    addressed: int


def find_iterations(rank: Ints, ordinal: NDArray[np.uint32], of_rank: Ints, begin: Ints, end: Ints) -> Ints:
    """In which iteration each operation was issued, (n,), -1 none.

    Args:
        rank: Who has issued each, (n,).
        ordinal: Which of its operations it is, (n,).
        of_rank: Whose each iteration is, ascending, (iterations,).
        begin: How many operations that rank had issued when it began, (iterations,); it began when the one before it
            was over.
        end: The same when it was over, (iterations,).
    """
    ranks = int(of_rank[-1]) + 1 if len(of_rank) else 0
    first = np.searchsorted(of_rank, np.arange(ranks + 1))
    table = Table.of(ranks=ranks, iterations=len(of_rank), first=first, begin=begin, end=end)
    of = np.empty(len(rank), np.int64)
    at = addresses((rank, np.int64), (ordinal, np.uint32), (of, np.int64))
    loops().wr_find_iterations(ctypes.byref(table), len(rank), *at)
    return of


def sum_iterations(of: Ints, iterations: int, sort: Numbers, **ops: NDArray[np.generic]) -> Sums:
    """Add up the operations of each iteration.

    Args:
        of: The iteration of each operation, (n,), -1 none.
        iterations: How many there are.
        sort: By communicator, a number that is equal for those of the same sort.
        ops: The columns of the operations, (n,) each, by their names in `wr_sums` from `rank` to `kind`.
    """
    messages, pattern, turned, roots, talks = np.zeros((5, iterations), np.uint64)
    sums = _Sums.of(
        count=len(of), iterations=iterations, comms=len(sort), iteration=of, sort=sort, messages=messages,
        pattern=pattern, turned=turned, roots=roots, talks=talks, **ops,
    )  # fmt: skip
    loops().wr_sum_iterations(ctypes.byref(sums))
    return Sums(messages, pattern, turned, roots, talks, int(sums.addressed))
