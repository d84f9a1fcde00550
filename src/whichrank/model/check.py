"""What a check before a job has found, as rank 0 prints it: one line of JSON."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

LINE_BEGINS: Final = "whichrank-check: "
"""What stands before it; a launcher may put words of its own in front."""


class CheckedLink(msgspec.Struct, frozen=True, kw_only=True):
    """Messages from another rank to the one that says it: seconds of each repeat."""

    src: int
    bytes: int
    seconds: tuple[float, ...]


class CheckedRank(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank has measured; 0 where the device has no such type of numbers."""

    rank: int
    host: str
    device: str
    compute_s: tuple[float, ...] = ()
    """A product of matrices: each of MULTIPLIED, and that once for each repeat."""
    memory_s: tuple[float, ...] = ()
    """A copy of memory, of each repeat."""
    links: tuple[CheckedLink, ...] = ()
    problem: str = ""
    """What it could not measure, and why."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What all ranks have measured."""

    schema: Literal["whichrank.check/1"] = "whichrank.check/1"
    world: int
    ranks: tuple[CheckedRank, ...] = ()
    sizes: tuple[int, ...] = ()
    """Bytes of messages on links."""
    side: int = 0
    """Of the matrices."""
    copied: int = 0
    """Floats that are copied."""
    late: tuple[int, ...] = ()
    """Ranks that did not come, and in which part; nothing is known then."""
    late_in: str = ""
