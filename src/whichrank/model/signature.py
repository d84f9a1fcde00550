"""The signature of an operation as one number, and as words.

Two numbers that differ in one round contradict each other. What may legally differ between members is left out:
splits of an uneven all-to-all, and in recordings the sizes of gather, scatter and tensor lists, of which only a rank's
own input is known there (DESIGN 5.2, question 3).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.records import signatures as signs_of
from whichrank.model.codes import UNNUMBERED, Flag
from whichrank.model.kinds import BARRIERS, REDUCING, ROOTED, Kind, kinds_that

DTYPES = {
    0: ("uint8", 1), 1: ("int8", 1), 2: ("int16", 2), 3: ("int32", 4), 4: ("int64", 8), 5: ("float16", 2),
    6: ("float32", 4), 7: ("float64", 8), 8: ("complex32", 4), 9: ("complex64", 8), 10: ("complex128", 16),
    11: ("bool", 1), 15: ("bfloat16", 2), 23: ("float8_e5m2", 1), 24: ("float8_e4m3fn", 1),
}  # fmt: skip
"""c10's scalar types: number -> name, bytes per element."""

UNKNOWN_REDUCE_OP = 255
REDUCE_OPS = {0: "sum", 1: "avg", 2: "product", 3: "min", 4: "max", 5: "band", 6: "bor", 7: "bxor", 8: "premul_sum"}

_SIZED, _MAY_BE_UNEVEN, _HAS_REDUCE_OP, _HAS_PEER = (1 << bit for bit in range(4))
PARTS = np.full(256, _SIZED, np.uint8)
"""What is part of the signature, by kind (`enum wr_part` of `columns.h`); of one that is not known the peer is."""
PARTS[list(BARRIERS)] = 0
PARTS[list(kinds_that(lambda t: t.uneven))] |= _MAY_BE_UNEVEN
PARTS[list(REDUCING)] |= _HAS_REDUCE_OP
PARTS[[*kinds_that(lambda t: t.addressed), *range(Kind.SEND, 256)]] |= _HAS_PEER


def mix(a: NDArray[np.uint64], b: NDArray[Any]) -> NDArray[np.uint64]:
    """Mix `b` into the hash `a`, element by element."""
    with np.errstate(over="ignore"):
        h = np.bitwise_xor(a, b.astype(np.uint64, copy=False))
        h *= np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
        return h


class Columns(Protocol):
    """An array of rows with fields, or what gives each field as an array."""

    def __getitem__(self, field: str, /) -> Any: ...


def has_free_sizes(rows: Columns) -> NDArray[np.bool_]:
    """Of which operations may the sizes differ between members, so that signatures say nothing of them?

    Args:
        rows: The fields kind and flags.
    """
    parts, flags = PARTS[rows["kind"].astype(np.uint8)], rows["flags"]
    uneven = ((parts & _MAY_BE_UNEVEN) != 0) & ((flags & Flag.UNEVEN) != 0)
    return np.asarray(uneven | ((flags & Flag.FREE_SIZES) != 0))


def signatures(rows: Columns) -> NDArray[np.uint64]:
    """One number per operation for what all members of the round must agree on.

    Args:
        rows: The fields kind, dtype, count, reduce_op, peer and flags.
    """
    return signs_of(PARTS, *(rows[name] for name in ("kind", "dtype", "reduce_op", "peer", "flags", "count")))


def kind_name(kind: int) -> str:
    """`all_reduce`, `send`, ..."""
    return Kind(kind).name.lower() if kind in Kind._value2member_map_ else f"kind_{kind}"


def op_name(kind: int, counter: int) -> str:
    """`all_reduce #1204`, without the number where that is not known; `operation #1204` of a kind that is not known."""
    return ("operation" if kind == Kind.OTHER else kind_name(kind)) + (f" #{counter}" if counter < UNNUMBERED else "")


def dtype_name(dtype: int) -> str | None:
    """`float32`, ...; None if not known."""
    return DTYPES[dtype][0] if dtype in DTYPES else None


def op_bytes(dtype: int, count: int) -> int | None:
    """Bytes of `count` elements; None if the type is not known."""
    return DTYPES[dtype][1] * count if dtype in DTYPES else None


def describe(kind: int, dtype: int, count: int, reduce_op: int, peer: int) -> str:
    """The signature in words: `all_reduce of 1024 float32 (sum)`."""
    if kind in BARRIERS:
        return kind_name(kind)
    text = f"{kind_name(kind)} of {count} {dtype_name(dtype) or 'elements'}"
    if kind in REDUCING and reduce_op != UNKNOWN_REDUCE_OP:
        text += f" ({REDUCE_OPS.get(reduce_op, reduce_op)})"
    if kind in ROOTED and peer >= 0:
        text += f", root {peer}"
    elif kind == Kind.SEND:
        text += f" to {peer}"
    elif kind == Kind.RECV:
        text += f" from {peer}"
    return text
