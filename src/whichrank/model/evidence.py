"""The facts that a verdict rests on, and the names of those that more than one room knows.

A fact is a number or a text with a unit and a place. Texts show the most important ones; `DETAILS` are for whoever
checks a verdict, in its JSON and its report.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

AT: Final = "main thread at"
RAISED_AT: Final = "raised at"
"""What of the evidence says where in its code a rank is, or was when it raised."""
TIME_BLOCKED: Final = "time blocked"
"""The fact of how long the one that waits longest had waited when this was written. Texts leave it out: they say since
when ranks have waited, and two numbers for nearly the same would contradict each other."""
RAISED_ALIKE: Final = "raised at the same place"
"""The fact, of cause `unknown` and reason `exception`, that no rank differs: `value` ranks, `where` of how many."""
IN_OPERATION: Final = ", in an operation"
"""At the end of that `where`: an operation raised it in all of them, which may be the doing of one."""
SKEWED: Final = "operations "
"""Begins the fact of how many operations a rank has left out, repeated or added; what it did follows."""
SLOW_ITERATIONS: Final = "slow iterations"
COMPARED_OVER: Final = "compared over"
ALSO_SLOW: Final = "also slow"
HOW_OTHERS_LOST: Final = "how other ranks lost time"
ONLY_SLOW_ONE: Final = "iteration time if this rank were the only slow one"
ITERATION: Final = "iteration time"
QUICK_LINK: Final = "iteration time if this link were as quick as usual"
QUICK_LINKS: Final = "iteration time if these links were as quick as usual"
"""What slow links cost: the sentence says it too."""
RAN: Final = "its main thread on a CPU"
"""Facts of a slow rank beside its own time and the iteration's length."""

DETAILS: Final = frozenset({SLOW_ITERATIONS, COMPARED_OVER, ALSO_SLOW, HOW_OTHERS_LOST, ONLY_SLOW_ONE, RAN})
"""Facts that only the report and the JSON have: a text with all of them hides what matters."""


class Evidence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number or fact that the verdict rests on."""

    what: str
    """A noun phrase: "time blocked", "exit code"."""
    value: int | float | str | bool
    unit: str | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise ValueError(f"evidence '{self.what}' has no number: {self.value}")


def waiting_for(rank: int, ranks: int) -> Evidence:
    """How many ranks wait for a rank itself, and not for one that waits for it."""
    return Evidence(what=f"waiting directly for rank {rank}, not for another waiting rank", value=ranks, unit="ranks")


def is_place(fact: Evidence) -> bool:
    """Whether a fact is the line of code in which a thread of a rank is: `main thread at`, `thread 'loop' at`."""
    return fact.what == AT or (fact.what.startswith("thread ") and fact.what.endswith(" at"))
