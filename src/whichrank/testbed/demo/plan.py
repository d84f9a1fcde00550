"""What the injector draws, from the seed alone: the victim, the moment, the variant, the operation.

Pure functions: the same seed gives the same plan, whatever the machine does. Only where a rank's list of operations
is needed (it says it itself, once it has run three iterations) is the draw kept as a number in [0, 1) and resolved
later.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whichrank.testbed.demo.fault import Fault, Variant
from whichrank.testbed.demo.layout import Layout

FIRST_ITERATION = 7
LAST_ITERATION = 18


@dataclass(frozen=True)
class Plan:
    """One draw.

    Args:
        variant: form of the fault.
        victims: all ranks in the order in which they are tried; the first that has a fitting operation is it.
        iteration: earliest iteration.
        site: fraction of the list of fitting operations.
        delay_s: from the start of the iteration to a blow from outside.
        duration_s: of what ends by itself.
    """

    variant: Variant
    victims: tuple[int, ...]
    iteration: int
    site: float
    delay_s: float
    duration_s: float


@dataclass(frozen=True)
class Truth:
    """What was done to the job; known to the injector alone.

    Args:
        fault: name in the catalogue.
        variant: its form.
        kind: outside, in-program or healthy.
        effect: what it does to the job, see `faults`.
        culprits: global ranks that a right verdict names; empty where no rank is at fault.
        candidates: ranks that may be named beside or instead of them without being wrong (the members of a cycle).
        cause: the best answer.
        causes: all right answers.
        reason: the best answer, empty if there is none to expect.
        reasons: all right answers.
        hard: whether it is hard evidence.
        layout: name.
        iteration: of the victim.
        at_utc: ISO 8601.
        at_monotonic_ns: CLOCK_MONOTONIC.
        iteration_s: seconds that an iteration took before, 0 unknown.
        ended_monotonic_ns: when it was taken back from outside, else None.
        sources: ranks of which what they send to other nodes was slowed; they may be named.
        targets: the same of what other nodes send to them.
        pairs: of ranks between which nothing comes through, or all comes more slowly; the lower one first.
        phase: in which a rank is slow, or `ALL_PHASES`; empty: not known.
    """

    fault: str
    variant: str
    kind: str
    effect: str
    culprits: tuple[int, ...]
    candidates: tuple[int, ...]
    cause: str
    causes: tuple[str, ...]
    reason: str
    reasons: tuple[str, ...]
    hard: bool
    layout: str
    iteration: int
    at_utc: str
    at_monotonic_ns: int
    ended_monotonic_ns: int | None = None
    iteration_s: float = 0.0
    sources: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    phase: str = ""

    @property
    def slows_links(self) -> bool:
        """Whether links are to be reported."""
        return bool(self.sources or self.targets or self.pairs)


def draw(fault: Fault, ranks: int, seed: int, layout: str, variant: str | None = None) -> Plan:
    """Draw a plan; `variant` fixes the form instead of drawing it.

    Raises:
        ValueError: if the layout has nothing that the fault could act on.
    """
    rng = random.Random(f"{fault.name}/{ranks}/{seed}/{layout}")
    wanted = fault.variants if variant is None else (fault.variant(variant),)
    fitting = [entry for entry in wanted if fits_layout(entry, Layout.parse(layout))]
    if not fitting:
        raise ValueError(f"layout {layout} has nothing that {fault.name} could act on: it needs two kinds of groups")
    drawn = rng.choice(fitting)
    victims = list(range(ranks))
    rng.shuffle(victims)
    return Plan(
        variant=drawn,
        victims=tuple(victims),
        iteration=rng.randint(FIRST_ITERATION, LAST_ITERATION),
        site=rng.random(),
        delay_s=rng.uniform(0, 0.15),
        duration_s=rng.uniform(3, 5),
    )


def fits_layout(variant: Variant, layout: Layout) -> bool:
    """Whether a job of this layout has operations for the variant."""
    if variant.needs == "mixed":
        return layout.mixed
    if variant.needs == "tp-behind-pp":
        return layout.tp > 1 and layout.pp > 1
    return True


def fitting_sites(sites: Sequence[dict[str, Any]], fit: str, pipeline_stage: int) -> list[int]:
    """Numbers of the operations of an iteration that are fit for a fault.

    Args:
        sites: what `Call.site` says of each operation, in order.
        fit: ``any``; ``send``, where there is a third rank to send to; ``all_reduce`` (of two elements or more) or
            ``broadcast``; ``different-next``: a collective after
            which the next one on its communicator has another signature, so that leaving it out or doing it twice
            contradicts the peers at once; ``equal-silent``: a collective on a communicator on which all have the same
            signature, so that it never does; ``equal-cycle``: the same on a pp group, or on the tp group of a later
            pipeline stage, where it ends in a cycle of waits within two iterations: the group is one operation apart,
            and the stage before it waits for both halves of it.
        pipeline_stage: of the rank.
    """
    numbers = range(len(sites))
    if fit == "any":
        return list(numbers)
    if fit == "send":
        return [n for n in numbers if sites[n]["kind"] == "send" and sites[n]["size"] > 2]
    collectives = [n for n in numbers if sites[n]["kind"] not in ("send", "recv") and sites[n]["size"] > 1]
    if fit in ("all_reduce", "broadcast"):
        smallest = 2 if fit == "all_reduce" else 1  # half of one element is one element
        return [n for n in collectives if sites[n]["kind"] == fit and sites[n]["signature"][2] >= smallest]
    found = []
    for n in collectives:
        same_group = [m for m in collectives if sites[m]["role"] == sites[n]["role"]]
        following = same_group[(same_group.index(n) + 1) % len(same_group)]
        signatures = {str(sites[m]["signature"]) for m in same_group}
        if fit == "different-next" and sites[following]["signature"] != sites[n]["signature"]:
            found.append(n)
        cycle = sites[n]["role"] == "pp" or (sites[n]["role"] == "tp" and pipeline_stage > 0)
        if fit == ("equal-cycle" if cycle else "equal-silent") and len(signatures) == 1:
            found.append(n)
    return found
