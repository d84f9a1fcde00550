"""What a slow rank costs: how long iterations take, and how long they would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whichrank.model.clause import Clause, Says, clause
from whichrank.model.evidence import ITERATION, ONLY_SLOW_ONE, Evidence


def rounded(seconds: float) -> float:
    """As verdicts have it: tenths of milliseconds."""
    return round(seconds, 4)


@dataclass(frozen=True)
class Cost:
    """How long an iteration takes since the rank is slow, and how long it would take.

    Attributes:
        now_s: It takes.
        best_s: If no rank were slow.
        alone_s: If this one were the only slow one.
        has_others: It is not.
    """

    now_s: float
    best_s: float
    alone_s: float
    has_others: bool

    def clause(self, others: Sequence[int]) -> Clause:
        """What is said of it, beside these other ranks that are slow."""
        now_s, best_s = rounded(self.now_s), rounded(self.best_s)
        if not self.has_others:
            return clause(Says.COST, now_s=now_s, best_s=best_s)
        return clause(Says.COST_TOGETHER, others=tuple(others), now_s=now_s, best_s=best_s)

    def evidence(self, rank: int) -> tuple[Evidence, ...]:
        """The numbers."""
        now = Evidence(what=ITERATION, value=rounded(self.now_s), unit="s")
        if not self.has_others:
            return now, Evidence(
                what="iteration time if this rank were not slow",
                value=rounded(self.best_s),
                unit="s",
                where=f"rank {rank}",
            )
        best = Evidence(what="iteration time if no rank were slow", value=rounded(self.best_s), unit="s")
        return (
            now,
            best,
            Evidence(
                what=ONLY_SLOW_ONE,
                value=rounded(self.alone_s),
                unit="s",
                where=f"rank {rank}",
            ),
        )
