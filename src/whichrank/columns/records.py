"""Rows of completed operations as columns: each field, the signature, and the communicator of each."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.library import Struct, address, addresses, fields, loops

Ints = NDArray[np.int64]
_TYPES: Final = {
    "rank": "i8", "comm_id": "u8", "t_issue_ns": "u8", "t_end_ns": "u8", "elements": "u8", "sign": "u8",
    "counter": "u4", "ordinal": "u4", "wait_us": "u4", "peer": "i4", "comm_slot": "u2", "kind": "u1",
    "flags": "u1", "status": "u1",
}  # fmt: skip
_BYTES: Final = sum(np.dtype(dtype).itemsize for dtype in _TYPES.values())


class _Columns(Struct):
    """`wr_columns`."""

    _fields_, COLUMNS = fields(count=None, **_TYPES, others=None)


class Slots(Struct):
    """`wr_slots`."""

    _fields_, COLUMNS = fields(
        ranks=None, slots=None, members=None, comms=None, in_slot="i4", comm_of="i8", member_at="i8", id="u8"
    )


class _Runs(Struct):
    """`wr_runs`."""

    _fields_, COLUMNS = fields(
        count=None, rank="i8", issue_ns="i8", end_ns="i8", long_ns=None, begin="i8", last_issue_ns="i8",
        last_end_ns="i8", longs="i8", runs=None, long_ones=None,
    )  # fmt: skip


def take_apart(rows: np.ndarray[Any, Any], parts: NDArray[np.uint8], ranks: int) -> tuple[dict[str, NDArray[Any]], int]:
    """Rows as columns.

    Args:
        rows: Of RECORD_REPORTED, (n,).
        parts: For each of the 256 kinds, what is part of its signature (`enum wr_part`).
        ranks: Of the job.

    Returns:
        Each field, (n,), `elements` of the row's count and `sign` of the signature; and how many of the rows are of no
        rank of the job, or no operations.
    """
    n, rows = len(rows), np.ascontiguousarray(rows)
    columns: dict[str, NDArray[Any]] = {}
    room, at = np.empty(n * _BYTES, np.uint8), 0
    for name, dtype in _TYPES.items():  # the widest first, so that each begins where its type may
        size = n * np.dtype(dtype).itemsize
        columns[name] = room[at : at + size].view(dtype)
        at += size
    taken = _Columns.of(count=n, **columns)
    begin = int(rows.__array_interface__["data"][0])
    loops().wr_take_apart(begin, address(parts, np.dtype(np.uint8)), ranks, ctypes.byref(taken))
    return columns, int(taken.others)


def signatures(
    parts: NDArray[np.uint8], kind: NDArray[Any], dtype: NDArray[Any], reduce_op: NDArray[Any], peer: NDArray[Any],
    flags: NDArray[Any], count: NDArray[Any],
) -> NDArray[np.uint64]:  # fmt: skip
    """The signature of each operation, (n,).

    Args:
        parts: For each of the 256 kinds, what is part of its signature (`enum wr_part`).
        kind: (n,), as the others; numbers that their types in a row can hold.
        dtype: As c10 numbers them.
        reduce_op: As c10 numbers them.
        peer: Group rank of root or peer, -1 none.
        flags: Those that rows of the ring have.
        count: Elements.
    """
    columns = [np.ascontiguousarray(column).astype(of, copy=False) for column, of in (
        (kind, "u1"), (dtype, "u1"), (reduce_op, "u1"), (peer, "i4"), (flags, "u1"), (count, "u8"),
    )]  # fmt: skip
    sign = np.empty(len(kind), np.uint64)
    at = [address(column, column.dtype) for column in (parts, *columns, sign)]
    loops().wr_signatures(len(kind), *at)
    return sign


def find_comms(table: Slots, rank: Ints, slot: NDArray[np.uint16], ids: NDArray[np.uint64]) -> tuple[Ints, Ints, int]:
    """Find communicators by the slots of rings.

    Args:
        table: Which communicator is in which slot.
        rank: Whose ring, (n,).
        slot: (n,).
        ids: The communicator's id, (n,).

    Returns:
        Its index, (n,), and the group rank of the rank there, (n,): both -1 where the slot has another one by now; and
        how many these are.
    """
    comm, place = np.empty((2, len(rank)), np.int64)
    at = addresses((rank, np.int64), (slot, np.uint16), (ids, np.uint64), (comm, np.int64), (place, np.int64))
    return comm, place, int(loops().wr_find_comms(ctypes.byref(table), len(rank), *at))


def runs_of(rank: Ints, issue_ns: Ints, end_ns: Ints, long_ns: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Runs of operations of one rank.

    Args:
        rank: Of each operation, (n,).
        issue_ns: When each was issued, (n,).
        end_ns: When each was completed, (n,).
        long_ns: How long is long.

    Returns:
        Where each run begins, and when its latest one was issued and was completed, (r,) each; and the places of
        operations that took long.
    """
    n = len(rank)
    begin, last_issue_ns, last_end_ns, longs = np.empty((4, n), np.int64)
    runs = _Runs.of(
        count=n, rank=rank, issue_ns=issue_ns, end_ns=end_ns, long_ns=long_ns, begin=begin,
        last_issue_ns=last_issue_ns, last_end_ns=last_end_ns, longs=longs,
    )  # fmt: skip
    loops().wr_find_runs(ctypes.byref(runs))
    return begin[: runs.runs], last_issue_ns[: runs.runs], last_end_ns[: runs.runs], longs[: runs.long_ones]
