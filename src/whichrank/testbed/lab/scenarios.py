"""The catalogue that methods are scored on: what is done to which workloads, and the class that CCL-D gives it.

A scenario is a fault of a fixed magnitude. Its runs go over the workloads in which it has its effect, one by one with
the seed. Classes are those of CCL-D section 2.2: H1 not entered, H2 inconsistent, H3 hardware; S1 computation slow,
S2 communication slow, S3 both. Healthy jobs have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from whichrank.errors import UsageError

Class = Literal["H1", "H2", "H3", "S1", "S2", "S3"]
CLASSES: Final[tuple[Class, ...]] = ("H1", "H2", "H3", "S1", "S2", "S3")
_ALL: Final = ("ddp", "fsdp", "3d", "ring", "moe")
_SYNCHRONOUS: Final = ("ddp", "fsdp", "ring", "moe")
"""Without a pipeline: its bubbles hide a part of what is slow, and it sends too little for a slow link to matter."""
_SENDING: Final = (*_SYNCHRONOUS, "pipeline")
"""With one whose stages send so much that their links matter."""
_BUCKETS: Final = ("3d", "ring", "moe")
"""Whose scripts issue the reductions of gradients themselves."""
_PIPELINE: Final = ("3d",)
_ALIKE: Final = ("ddp", "fsdp", "moe")
"""Whose ranks all have peers that do the same: nothing is said of uneven work in a ring."""
QUICK: Final = "quick"
"""The name of the subset that is run often."""
CLAIMS: Final = "claims"
"""The name of what other methods claim."""


@dataclass(frozen=True)
class Scenario:
    """A column of the long table.

    Attributes:
        fault: Name.
        fault_class: None for healthy jobs, and for jobs in which all are slow alike.
        workloads: In which it has its effect.
        variant: Its form; empty: drawn by the seed.
        is_quick: Of the subset that is run often.
        is_claim: Not of the catalogue, but as the papers of other methods have it: a job that does the same in each
            iteration, for long before it becomes much slower, or hangs.
    """

    fault: str
    fault_class: Class | None
    workloads: tuple[str, ...] = _ALL
    variant: str = ""
    is_quick: bool = False
    is_claim: bool = False

    @property
    def name(self) -> str:
        """Of the fault, and of its form if it is fixed."""
        return " ".join(filter(None, (self.fault, self.variant, CLAIMS if self.is_claim else "")))

    @property
    def outlasts_its_job(self) -> bool:
        """The fault is the network's, so a job that is started anew meets it again; or there is none."""
        is_of_a_process = self.fault == "stop-in-op"
        return (self.fault_class in ("H3", "S2", "S3") and not is_of_a_process) or self.fault == "none"

    def fits(self, workload: str) -> bool:
        """Whether it has its effect there."""
        return workload in self.workloads or (workload == "pipeline" and "3d" in self.workloads)

    def workload(self, seed: int) -> str:
        """The one that a seed runs."""
        return self.workloads[seed % len(self.workloads)]


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario("stop", "H1", is_quick=True),
    Scenario("kill", "H1"),
    Scenario("sleep-gil", "H1"),
    Scenario("stuck-io", "H1"),
    Scenario("stalled-loader", "H1"),
    Scenario("never-init", "H1"),
    Scenario("slow-then-stop", "H1", _SYNCHRONOUS),
    Scenario("skip-op", "H2", _PIPELINE, variant="equal"),
    Scenario("repeat-op", "H2", _PIPELINE, variant="equal"),
    Scenario("wrong-shape", "H2", _BUCKETS, is_quick=True),
    Scenario("wrong-dtype", "H2", _BUCKETS),
    Scenario("wrong-op", "H2", _BUCKETS),
    Scenario("wrong-reduce-op", "H2", _BUCKETS),
    Scenario("wrong-root", "H2", ("ddp",)),
    Scenario("wrong-order", "H2", _PIPELINE),
    Scenario("wrong-peer", "H2", ("ring",)),
    Scenario("ahead", "H2", ("ddp", "fsdp", "ring", "moe")),
    Scenario("stop-in-op", "H3", _BUCKETS),
    Scenario("unplugged", "H3", is_quick=True),
    Scenario("mute-node", "H3"),
    Scenario("one-way", "H3"),
    Scenario("lost-flow", "H3"),
    Scenario("dead-spine", "H3"),
    Scenario("partition", "H3"),
    Scenario("slow-compute", "S1", variant="x2"),
    Scenario("slow-layers", "S1", variant="x5"),
    Scenario("slow-forward", "S1", variant="x5"),
    Scenario("slow-backward", "S1", variant="x3"),
    Scenario("slow-start", "S1", variant="x2"),
    Scenario("flap", "S1", variant="x5"),
    Scenario("slow-data", "S1", variant="x2"),
    Scenario("gc-storm", "S1", variant="300k"),
    Scenario("cpu-limit", "S1", ("ddp",), variant="0.03"),
    Scenario("cpu-contention", "S1", ("ddp", "fsdp"), variant="4"),
    Scenario("two-slow", "S1", variant="x2"),
    Scenario("two-causes", "S1", variant="x2"),
    Scenario("slow-link", "S2", _SENDING, variant="50mbit", is_quick=True),
    Scenario("slow-inbound", "S2", _SENDING, variant="50mbit"),
    Scenario("lossy-link", "S2"),
    Scenario("congested", "S2"),
    Scenario("congested-spine", "S2"),
    Scenario("link-jitter", "S2", _SYNCHRONOUS),
    Scenario("slow-link-and-compute", "S3", _SYNCHRONOUS, variant="50mbit"),
    Scenario("slow-every-rank", None, variant="x2"),
    Scenario("none", None, is_quick=True),
    Scenario("jitter", None),
    Scenario("gc", None),
    Scenario("late-checkpoint", None),
    Scenario("rank0-eval", None),
    Scenario("first-compile", None),
    Scenario("log-gather", None),
    Scenario("stop-and-continue", "H1"),
    Scenario("elastic-join", None, ("ddp", "fsdp", "ring", "moe")),
    Scenario("reroute", None),
    Scenario("more-tokens", None, ("3d", "ddp", "fsdp"), variant="x2"),
    Scenario("longer-sequences", None, ("ddp", "fsdp"), variant="x2"),
    Scenario("wander", None, _ALIKE, variant="x2"),
    Scenario("long-last-stage", None, _PIPELINE),
    Scenario("absorbed", None, _PIPELINE),
)
CLAIMED: Final = (
    Scenario("stop", "H1", ("ddp", "fsdp"), is_claim=True),
    Scenario("wrong-op", "H2", ("moe",), is_claim=True),
    Scenario("stop-in-op", "H3", ("moe",), is_claim=True),
    Scenario("unplugged", "H3", ("ddp", "fsdp"), is_claim=True),
    Scenario("slow-compute", "S1", ("ddp", "fsdp"), variant="x5", is_claim=True),
    Scenario("slow-link", "S2", ("ddp", "fsdp"), variant="50mbit", is_claim=True),
    Scenario("slow-link-and-compute", "S3", ("ddp", "fsdp"), variant="50mbit", is_claim=True),
)
"""In which methods of others are to reach what their papers say."""


def workloads_of(fault: str) -> tuple[str, ...]:
    """Those in which a fault has its effect; all, if no scenario says."""
    return tuple(dict.fromkeys(w for s in SCENARIOS if s.fault == fault for w in s.workloads)) or _ALL


def known_as(faults: Iterable[str]) -> dict[str, Scenario]:
    """By name: the scenarios of both catalogues, and each fault in any of its forms.

    Args:
        faults: Names of all that there are.
    """
    by_name = {scenario.name: scenario for scenario in (*SCENARIOS, *CLAIMED)}
    return by_name | {fault: Scenario(fault, None, workloads_of(fault)) for fault in faults}


def chosen(names: Iterable[str]) -> Iterator[Scenario]:
    """The scenarios of these names, of faults of these names, or of a subset; all, if there are no names.

    Raises:
        UsageError: There is none of a name.
    """
    wanted = list(names)
    known = {QUICK, CLAIMS, *(name for s in (*SCENARIOS, *CLAIMED) for name in (s.name, s.fault))}
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no scenario '{name}'", mend="whichrank lab list  shows all")
    yield from (claim for claim in CLAIMED if {CLAIMS, claim.name} & set(wanted))
    for scenario in SCENARIOS:
        if not wanted or {scenario.name, scenario.fault} & set(wanted) or (QUICK in wanted and scenario.is_quick):
            yield scenario


def by_class() -> Iterator[tuple[str, list[str]]]:
    """Classes and the names of their scenarios, then the names of those without, and of the subsets."""
    for fault_class in (*CLASSES, None):
        yield fault_class or "none", [s.name for s in SCENARIOS if s.fault_class == fault_class]
    yield QUICK, [s.name for s in SCENARIOS if s.is_quick]
    yield CLAIMS, [s.name for s in CLAIMED]
