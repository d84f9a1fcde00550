"""What a method said in a run, as it is kept."""

from __future__ import annotations

import msgspec


class Word(msgspec.Struct, frozen=True):
    """Something that a method said.

    Attributes:
        at_s: On the tape's clock, CLOCK_MONOTONIC of the analyzer.
        took_ms: What the method computed for until then, since its snapshot before.
        kind: hang or slow.
    """

    at_s: float
    took_ms: float
    kind: str
    ranks: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    fault_class: str | None = None
