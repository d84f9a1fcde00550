"""Numbers and lists of ranks as people write them: `1.5 KiB`, `12.3 s`, `0-3, 6 and 8`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_LISTED: Final = 8
"""Items of a list that are written out; of the rest only the number is given."""


def ranges(ranks: Sequence[int]) -> str:
    """Ranks in short: `0-3, 6 and 8`; more than eight runs are cut with their number."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a}, {b}" for a, b in runs]
    items = ", ".join(texts[:MOST_LISTED]).split(", ")
    if len(texts) > MOST_LISTED:
        left_out = sum(b - a + 1 for a, b in runs[MOST_LISTED:])
        return f"{', '.join(items)} and {left_out:,} more"
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else items[0]


def number(value: float) -> str:
    """A number with thousands separators and three significant digits after them."""
    if isinstance(value, int) or abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def size(amount: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{number(amount)} {unit}"
        amount /= 1024
    return f"{number(amount)} TiB"


def duration(seconds: float) -> str:
    """Seconds in the unit that a reader expects."""
    if abs(seconds) < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if abs(seconds) < 120:
        return f"{seconds:.3g} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"


def count(number_of: int, noun: str) -> str:
    """`1 rank`, `1,024 ranks`."""
    return f"{number_of:,} {noun}" if number_of == 1 else f"{number_of:,} {noun}s"


def rest(total: int) -> str:
    """What follows a list of `MOST_LISTED` items if there are more; empty if there are not."""
    return f"; and {total - MOST_LISTED:,} more" if total > MOST_LISTED else ""
