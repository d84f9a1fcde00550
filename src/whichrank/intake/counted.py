"""What a rank has issued, of sources that count collectives and dump nothing, as if it had been dumped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from whichrank.intake.flight_dump import COMPLETED, ENTRY, SCHEDULED, UNKNOWN_DTYPE, Dump, Group
from whichrank.model.kinds import Kind


class Counted(NamedTuple):
    """A collective that a rank has issued.

    Attributes:
        group: Index into the groups of the rank.
        seq: Its number in the group, the first is 1.
        is_done: It is complete.
        kind: Of `Kind`.
        in_count: Elements of the input, 0 if that is not known.
        out_count: The same of the output.
        created_ns: Unix time, 0 if that is not known.
        lists: Of tensors whose sizes may differ between members.
    """

    group: int
    seq: int
    is_done: bool
    kind: int = Kind.OTHER
    in_count: int = 0
    out_count: int = 0
    created_ns: int = 0
    lists: bool = False


_COLUMNS: Final = {
    "group": "group", "seq": "seq", "kind": "kind", "in_count": "count", "out_count": "out_count",
    "created_ns": "created_ns", "lists": "lists",
}  # fmt: skip
"""Columns of ENTRY, by field."""
_ROW: Final = np.dtype([(name, ENTRY[_COLUMNS[name]] if name in _COLUMNS else "?") for name in Counted._fields])


def dump_of(
    source: str, rank: int, groups: Sequence[Group], rows: Sequence[Counted], *, hides_messages: bool = False
) -> Dump:
    """The dump of a rank.

    Args:
        source: In the place of a version.
        rank: Global rank.
        groups: Those that it is in.
        rows: What it has issued, in that order.
        hides_messages: See `Dump`.
    """
    counted = np.array(list(rows), _ROW)
    entries = np.zeros(len(rows), ENTRY)
    for name, column in _COLUMNS.items():
        entries[column] = counted[name]
    entries["record"], entries["pg"] = np.arange(len(rows)), counted["group"]
    entries["state"] = np.where(counted["is_done"], COMPLETED, SCHEDULED)
    entries["peer"], entries["dtype"] = -1, UNKNOWN_DTYPE
    return Dump(source, "nccl", tuple(groups), {}, entries, rank=rank, hides_messages=hides_messages)
