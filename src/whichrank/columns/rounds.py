"""What members of communicators have issued in a round, held against the first of them that was reported."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.library import Struct, fields, loops

Ints = NDArray[np.int64]


class Rounds(Struct):
    """`wr_rounds`."""

    _fields_, COLUMNS = fields(
        comms=None, slots=None, members=None, ranks=None, seen_size=None, size="i8", last="u4", slot_at="i8",
        member_at="i8", lowest="u4", offset_s="f8", first="u8", first_ordinal="u4", first_end_s="f8", behind="i4",
        behind_since="u4", seen="u4", steady=None,
    )  # fmt: skip


class Lately(Struct):
    """`wr_lately`."""

    _fields_, COLUMNS = fields(size=None, next=None, comm="i4", member="i4", counter="u4", sign="u4", ordinal="u4")


class Completed(Struct):
    """`wr_completed`."""

    _fields_, COLUMNS = fields(
        count=None, rank="i8", comm="i8", place="i8", counter="u4", ordinal="u4", sign="u8", end_ns="u8", kind="u1",
        status="u1", order="i8", lap="u4", unseen="i8", differing="i8", moved="i8", apart="i8",
        taken=None, unseens=None, differings=None, moves=None, aparts=None,
    )  # fmt: skip


@dataclass(frozen=True)
class News:
    """What is to be looked at more closely.

    Attributes:
        taken: How many of the operations are compared.
        unseen: Places of those whose signature may be new, (n,).
        differing: Places of those that are not what the first of their round had issued, (n,).
        apart: Communicators of which a member is not where it was in many rounds before, (n,).
    """

    taken: int
    unseen: Ints
    differing: Ints
    apart: Ints


def hold_rounds(table: Rounds, lately: Lately, **done: NDArray[Any]) -> News:
    """Hold completed operations against the first of their rounds.

    Args:
        table: The rounds, changed.
        lately: The buffer of the operations completed last, written on.
        done: The columns of the operations, (n,) each, by their names in `wr_completed` up to `status`.
    """
    n = len(done["rank"])
    columns: dict[str, NDArray[Any]] = {"lap": np.empty(n, np.uint32), **done}
    for name in ("unseen", "differing", "moved", "apart"):
        columns[name] = np.empty(n, np.int64)
    held = Completed.of(count=n, order=None, **columns)
    if loops().wr_hold_rounds(ctypes.byref(table), ctypes.byref(lately), ctypes.byref(held)):
        held = Completed.of(count=n, order=np.argsort(columns["lap"], kind="stable"), **columns)
        loops().wr_hold_rounds(ctypes.byref(table), ctypes.byref(lately), ctypes.byref(held))
    unseen, differing, apart = (columns[name] for name in ("unseen", "differing", "apart"))
    return News(held.taken, unseen[: held.unseens], differing[: held.differings], apart[: held.aparts])
