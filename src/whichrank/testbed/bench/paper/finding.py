"""What a method says of a job: whom it names, and in which part of the iteration."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

WINDOW: Final = 6
"""Iterations over which a method that judges each iteration is asked for its name; no longer than a fault is watched
(`trial.WATCHED_ITERATIONS`)."""
LEAST: Final = 4
"""Of them, in which a rank must be found to be named: most. A pause comes once, so it is not named."""


class Part(msgspec.Struct, frozen=True):
    """A part of the iteration.

    Attributes:
        phase: Number of the phase as in `sim.program`: forward, backward, optimizer; -1 is not said.
        microbatch: Of the phase, -1 is not said.
    """

    phase: int = -1
    microbatch: int = -1


class Finding(msgspec.Struct, frozen=True):
    """Something that a method says.

    Attributes:
        ranks: That it names.
        links: Pairs of ranks that it names, sender and receiver.
        part: Where in the iteration.
    """

    ranks: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    part: Part = Part()


def that_recur(found: Iterable[Mapping[int, Part]]) -> list[Finding]:
    """The ranks that are found in most iterations of a window.

    Args:
        found: Of each iteration in order, the ranks and parts that were found.

    Returns:
        One finding for each rank, when it has been found often enough for the first time.
    """
    latest = deque[Mapping[int, Part]](maxlen=WINDOW)
    findings: dict[int, Finding] = {}
    for one in found:
        latest.append(one)
        for rank in one:
            parts = Counter(earlier[rank] for earlier in latest if rank in earlier)
            if parts.total() >= LEAST and rank not in findings:
                findings[rank] = Finding((rank,), part=parts.most_common(1)[0][0])
    return list(findings.values())
