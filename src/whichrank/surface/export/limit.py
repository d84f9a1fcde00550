"""Keeps an export within a size that viewers open: Perfetto's holds about two gigabytes in memory.

What goes first is what is oldest. Ranks that an incident names keep theirs longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from whichrank.surface.report.gather import Gathered
from whichrank.surface.report.scene import named_in
from whichrank.surface.report.spans import Spans, fitting
from whichrank.surface.report.units import moment_s, ranges

MOST_MIB: Final = 1024
LEAST_BYTES: Final = 48
"""Of an operation in any format; more operations than fit by this need not be held."""
STRETCHES: Final = 6
STRETCH: Final = 4096
"""Operations on which sizes are measured."""
ROOM: Final = 0.9
"""Of the size, for operations as large as the largest of these: what comes later has more digits."""

Export = Callable[[Gathered], Iterator[bytes]]


@dataclass(frozen=True)
class Cut:
    """What an export lacks.

    Attributes:
        kept: Operations that are in it.
        seen: Operations that there were.
        since_s: All operations that ended later are in it, in UTC where that is known, else None.
        named: Ranks that keep theirs longer.
        needed_mib: What all of them would take.
    """

    kept: int
    seen: int
    since_s: float | None
    named: str
    needed_mib: int


def most_spans(most_mib: int) -> int:
    """Operations that have to be held for an export of so many MiB."""
    return (most_mib << 20) // LEAST_BYTES


def within(gathered: Gathered, export: Export, most_bytes: int) -> tuple[Gathered, Cut | None]:
    """So much of a job as fits, and what is not in it.

    Args:
        gathered: The job.
        export: What makes bytes of it; the size of an operation is measured on some of them.
        most_bytes: Of the export.
    """
    spans, since_s = gathered.spans, gathered.complete_since_s
    named = np.array(sorted({rank for one in gathered.incidents for rank in named_in(one)}), np.int64)
    fixed, each = _sizes(gathered, export)
    most = max(1, int((most_bytes * ROOM - fixed) / each))
    kept, dropped_s = fitting(spans, named, most)
    since_s = max(since_s, dropped_s)
    if since_s == -np.inf:
        return gathered, None
    needed = (fixed + each * gathered.seen) / ROOM
    offset_s = gathered.utc_offset_s
    cut = Cut(
        kept=len(kept),
        seen=max(gathered.seen, len(spans)),
        since_s=None if offset_s is None else since_s + offset_s,
        named=ranges(named),
        needed_mib=int(needed / 2**20) + 1,
    )
    return replace(gathered, spans=kept, complete_since_s=since_s), cut


def sentence(cut: Cut, most_mib: int) -> str:
    """What is not in the file, and how to have it."""
    since = f" of the time since {moment_s(cut.since_s)}" if cut.since_s is not None else " of the latest time"
    longer = f", and older ones of rank{'s' * (not cut.named.isdecimal())} {cut.named}" if cut.named else ""
    return (
        f"the file is cut to {most_mib:,} MiB: it has {cut.kept:,} of {cut.seen:,} operations, all{since}{longer}; "
        f"--max-mib {cut.needed_mib} keeps all of them"
    )


def _sizes(gathered: Gathered, export: Export) -> tuple[float, float]:
    """Bytes that do not depend on how many operations there are, and those of an operation where they are largest.

    They are measured on stretches of operations that follow each other in time, since arrows lead from one to others.
    A stretch against its half says what an operation adds.
    """
    spans = gathered.spans[np.argsort(gathered.spans["end_s"], kind="stable")]
    begins = np.unique(np.linspace(0, max(0, len(spans) - STRETCH), STRETCHES).astype(np.int64)).tolist()
    fixed, each = 0.0, 1.0
    for begin in begins:
        part = spans[begin : begin + STRETCH]
        half = part[len(part) // 2 :]
        if len(half) == len(part):
            continue
        size = _size(gathered, export, part)
        each = max(each, (size - _size(gathered, export, half)) / (len(part) - len(half)))
        fixed = max(fixed, size - each * len(part))
    return fixed, each


def _size(gathered: Gathered, export: Export, spans: Spans) -> int:
    return sum(map(len, export(replace(gathered, spans=spans))))
