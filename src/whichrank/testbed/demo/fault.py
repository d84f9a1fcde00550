"""What an entry of the catalogue of faults says.

The expected cause and reason are words of DESIGN section 4; where the evidence allows more than one right answer,
the best stands first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["outside", "in-program", "healthy"]
Effect = Literal[
    "hang",
    "abort",
    "hang-or-abort",
    "death",
    "skew",
    "pause",
    "none",
    "slow",
    "slow-all",
    "slow-link",
    "uneven",
    "cut",
    "slow-then-hang",
]
Needs = Literal["anything", "mixed", "tp-behind-pp"]
Where = Literal[
    "op",
    "turn",
    "linger",
    "signal",
    "memory",
    "hello",
    "errand",
    "all",
    "place",
    "never",
    "drag",
    "cpu",
    "link",
    "path",
    "traffic",
    "ahead",
    "slow-then-stop",
    "join",
]

NOT_ENTERED = ("not_entered",)
INCONSISTENT = ("inconsistent",)
EXITED = ("process_exit",)
NONE = ("none",)
STOPPED_INSIDE = ("device", "not_entered")
ALL_PHASES = "all"
"""A rank is slow in all phases, so that none of them is the right one."""
STOPPED_ANYWHERE = ("not_entered", "device")
"""Stopped outside of any call; an asynchronous operation of its own may be under way, and then counts as entered."""


@dataclass(frozen=True)
class Variant:
    """One form of a fault.

    Args:
        name: of the form; also what the rank is reported.
        effect: what it does to the job.
        observed: what was seen in real runs.
        causes: right answers, the best first; empty means those of the fault.
        reasons: right reasons; empty means those of the fault.
        hard: whether it is hard evidence (alert within 3 s); None means as the fault says.
        sites: which operations are fit for it, see `plan.fitting_sites`.
        needs: which layouts have such operations, see `plan.fits_layout`.
    """

    name: str
    effect: Effect
    observed: str
    causes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    hard: bool | None = None
    sites: str = "any"
    needs: Needs = "anything"


@dataclass(frozen=True)
class Fault:
    """One entry of the catalogue.

    Args:
        name: as on the command line.
        description: one sentence.
        kind: applied from outside the process, inside the program, or no fault at all.
        where: how the injector applies it, see `recipes`.
        do: the order that a rank receives, for faults inside the program.
        causes: right values of `cause`, the best first.
        reasons: right values of `reason`.
        phase: right value of the phase in which a rank is slow, or `ALL_PHASES`; empty: not known.
        hard: whether it is hard evidence.
        variants: at least one.
        settings: told to every rank when it says hello, before anything else.
        module: the program to run.
        job_args: arguments that the demo job needs for it.
        host_ms: CPU time that each rank needs to prepare a batch, so that there is something to hold up.
        recovers: whether the job goes on afterwards.
        layouts: that have what it needs, of eight ranks; empty: all have.
        nodes: that the job runs on, as network namespaces; 1: on this machine as it is.
        leaves: switches on which these nodes hang, at least.
        spines: switches that join those, at least.
        tool: a program that it needs besides.
        needs_cgroup: it cannot be done without a control group for CPU time.
        is_elastic: the last node joins when the others train; all ranks are started again then.
    """

    name: str
    description: str
    kind: Kind
    where: Where
    variants: tuple[Variant, ...]
    do: str = ""
    causes: tuple[str, ...] = NONE
    reasons: tuple[str, ...] = ()
    phase: str = ""
    hard: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    module: str = "whichrank.testbed.demo.job"
    job_args: tuple[str, ...] = ()
    host_ms: float = 0.0
    recovers: bool = False
    layouts: tuple[str, ...] = ()
    nodes: int = 1
    leaves: int = 1
    spines: int = 1
    tool: str = ""
    needs_cgroup: bool = False
    is_elastic: bool = False

    @property
    def healthy(self) -> bool:
        """Whether no alert is right."""
        return self.kind == "healthy"

    @property
    def is_slow(self) -> bool:
        """Whether it makes the job slow, and no more."""
        return self.variants[0].effect in ("slow", "slow-all", "slow-link", "uneven")

    def variant(self, name: str) -> Variant:
        """The variant of this name.

        Raises:
            KeyError: if there is none.
        """
        return {entry.name: entry for entry in self.variants}[name]
