"""What can be changed in a running job: what each way of changing something needs to know, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from whichrank.act.planner import Level, Option
from whichrank.model.iterations import Floats, Ints
from whichrank.model.job_now import JobNow
from whichrank.model.links import LinkRate

STILL: Final = 1.1
"""Times what others take, from which something is slow: a tenth is a change (Greyhound, 4.2)."""
JUDGED: Final = 3
"""Latest iterations in all of which something must be slow to count as that."""
CLEAR: Final = 1.25
"""Times what others take, from which something slow is far from them."""
QUICK: Final = 2
QUICK_UNCLEAR: Final = 5
"""Latest iterations in all of which something must be as quick as others to be slow no more: what was far from them,
and what was not, which could be quick by chance."""


@dataclass(frozen=True)
class Found:
    """What open incidents name.

    Attributes:
        ranks: That compute slowly, and how sure that is.
        links: That are slow, by sending and receiving rank.
        quick_s: What an iteration would take if these links were as quick as usual; 0: not known.
    """

    ranks: Mapping[int, float] = field(default_factory=dict)
    links: Mapping[tuple[int, int], float] = field(default_factory=dict)
    quick_s: float = 0.0

    @property
    def confidence(self) -> float:
        """Of the least sure."""
        return min((*self.ranks.values(), *self.links.values()), default=1.0)


@dataclass(frozen=True)
class Seen:
    """What is known of a job at a look; all iterations are of what is in use now.

    Attributes:
        ranks: In order, (R,).
        own_s: What each computed in the latest iterations, (R, n).
        iteration_s: What the latest one takes.
        level: In which the job is.
        found: What incidents name.
        iterations: How many there were so far.
        job: The job as it is now.
        links: Rates of links between nodes.
    """

    ranks: Ints
    own_s: Floats
    iteration_s: float
    level: Level
    found: Found
    iterations: int
    job: Callable[[], JobNow]
    links: Callable[[], tuple[LinkRate, ...]]


@dataclass(frozen=True)
class Look:
    """What one way of changing something says.

    Attributes:
        slow: What is slow, by name.
        healthy_s: What an iteration takes while all is well; 0: not known.
        option: What could be done; None if nothing.
        before: How it is.
        after: How it would be.
    """

    slow: frozenset[str] = frozenset()
    healthy_s: float = 0.0
    option: Option | None = None
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
