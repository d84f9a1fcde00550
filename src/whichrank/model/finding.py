"""One detector's result: what it would say, and on which evidence. `verdict/ledger` makes incidents of findings."""

from __future__ import annotations

from dataclasses import dataclass, field

from whichrank.model.clause import Clause
from whichrank.model.evidence import Evidence
from whichrank.model.incident import Cause, FaultClass, Kind, Link, Reason, Spent


@dataclass(frozen=True)
class Blame:
    """A rank that a finding names."""

    rank: int
    confidence: float
    why: tuple[Clause, ...]


@dataclass(frozen=True)
class Finding:
    """What one rule says about the job now."""

    cause: Cause
    kind: Kind = "hang"
    fault_class: FaultClass | None = None
    reason: Reason | None = None
    culprits: tuple[Blame, ...] = ()
    candidates: tuple[Blame, ...] = ()
    comm: int = -1
    """Index of the communicator in which it shows, -1 none."""
    op: dict[str, int] | None = None
    """kind, counter, dtype, count, reduce_op, peer of the operation in which it shows."""
    victims: tuple[int, ...] = ()
    onset_s: float = 0.0
    hard: bool = False
    """Evidence that needs no timeout."""
    seasoned: bool = False
    """Hard evidence that took seconds to come about: it need not hold for long to be reported."""
    evidence: tuple[Evidence, ...] = ()
    times: tuple[Spent, ...] = ()
    links: tuple[Link, ...] = ()
    phase: str | None = None
    microbatch: int | None = None
    iteration: int | None = None
    """In which it happened, from 0, where that is known and is not the present one."""
    waited_for: frozenset[int] = frozenset()
    """All ranks that others wait for and that wait for nobody, named or not."""
    ask: tuple[int, ...] = ()
    """Other ranks whose stacks would decide."""
    complete: bool = True
    next: tuple[Clause, ...] = field(default=())

    @property
    def names(self) -> frozenset[int]:
        """The ranks it names as culprits."""
        return frozenset(b.rank for b in self.culprits)

    @property
    def blamed(self) -> frozenset[int]:
        """The ranks it names, or if it names nobody those that others wait for."""
        return self.names or self.waited_for
