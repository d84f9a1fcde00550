"""Other places for ranks in real jobs over a lab's network: figures 15 (right), 16 and 19 of Greyhound.

Each rank is a node of its own. Nodes lie on two leaves, and neighbours in the order are the stages of a replica: so
gradients go from leaf to leaf, over a cable that becomes slow. Or the ranks of one replica compute slowly.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from whichrank.testbed.bench.mitigate.runs import Run, Shape
from whichrank.testbed.lab.network import Network
from whichrank.testbed.lab.topology import SPINE, Topology

USUAL: Final = "400mbit"
RATES: Final = {"weak": "150mbit", "medium": "80mbit", "severe": "40mbit"}
"""Of the cables between leaves."""
STAGES: Final = (2, 4)
REPLICAS: Final = 2
GRADIENT_MIB: Final = 4.0
MICROBATCH_MS: Final = 10.0
EACH: Final = 8
COMPUTES: Final = 2.0
"""Times as long as a slow rank takes."""
MEASURED: Final = 12
"""Iterations."""
SETTLES_S: Final = 8.0
"""Behind the order; the change itself takes a second or two."""
COMES_S: Final = 60.0


class PlacesResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one job; seconds are of an iteration, medians, if nothing else is said."""

    stages: int
    what: str
    """A cable's rate, or how many ranks compute slowly."""
    healthy_s: float
    slow_s: float
    after_s: float
    predicted_s: float
    acted_after_s: float
    """From the onset until ranks were told; NaN: they were not."""
    stood_still_s: float
    """Longest iteration around the change, over a usual one."""
    moved: int
    """Ranks that changed places."""


def plans() -> list[tuple[int, str]]:
    """Stages, and the rate of a cable or how many ranks are slow."""
    by_rate = [(stages, name) for stages in STAGES for name in RATES]
    return by_rate + [(4, f"{count} slow ranks") for count in (2, 3)]


def try_places(stages: int, what: str, show_progress: Callable[[float], None]) -> PlacesResult:
    """Run a job, make it slow, and see what is done.

    Args:
        stages: Of two replicas.
        what: A key of RATES, or how many ranks of the first replica compute slowly.
        show_progress: Called with the share that is done.

    Raises:
        SensorError: The job fails.
        NoLabError: No network can be made here.
    """
    shape = Shape(
        stages=stages, replicas=REPLICAS, each=EACH, microbatch_ms=MICROBATCH_MS,
        gradient_mib=GRADIENT_MIB if what in RATES else 0.01, replicas_first=True,
    )  # fmt: skip
    with (
        network_of(shape.ranks) as network,
        tempfile.TemporaryDirectory(prefix="whichrank-mitigate-") as name,
        Run(shape, Path(name), network=network) as run,
    ):
        run.trains_well()
        show_progress(0.3)
        onset_s = time.time()
        healthy_s = run.median_s(onset_s - 5.0, onset_s)
        if what in RATES:
            limit_between_leaves(network, RATES[what])
        else:
            run.slow(dict.fromkeys(range(int(what.split()[0])), COMPUTES))
        is_acted = run.until(lambda: any(line.what == "made" for line in run.lines()), "it acted", COMES_S)
        show_progress(0.7)
        made = run.lines()[0] if is_acted else None
        made_s = made.at.timestamp() if made else time.time()
        time.sleep(SETTLES_S + MEASURED * max(healthy_s, 0.2))
        after_s = run.median_s(made_s + SETTLES_S)
        around = [one["s"] for one in run.iterations(0) if made_s - 1.0 <= one["at"] <= made_s + 15.0]
        run.finish()
        return PlacesResult(
            stages=stages, what=what, healthy_s=healthy_s, slow_s=run.median_s(onset_s, made_s), after_s=after_s,
            predicted_s=made.predicted_s if made else float("nan"),
            acted_after_s=made_s - onset_s if made else float("nan"),
            stood_still_s=max(around, default=0.0) - after_s,
            moved=int((np.array(made.before) != np.array(made.after)).sum()) if made else 0,
        )  # fmt: skip


@contextmanager
def network_of(nodes: int) -> Iterator[Network]:
    """Nodes on two leaves."""
    network = Network(f"m{secrets.token_hex(3)}", Topology(nodes, leaves=2, spines=1), USUAL)
    network.up()
    try:
        yield network
    finally:
        network.down()


def limit_between_leaves(network: Network, rate: str) -> None:
    """From now on nothing goes from leaf to leaf faster than this."""
    for cable in network.topology.cables:
        if cable.upper.kind == SPINE:
            network.limit_cable(cable.lower, cable, rate)


def places_table(results: Sequence[PlacesResult]) -> str:
    """A line for each job."""
    lines = [
        "| stages x replicas | slow | iteration, healthy | slow | in other places | predicted | told after"
        " | training stood still | ranks moved |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in results:
        what = f"cable of {RATES[one.what]} ({one.what})" if one.what in RATES else one.what
        acted = f"{one.acted_after_s:.1f} s" if one.acted_after_s == one.acted_after_s else "not"
        lines.append(
            f"| {one.stages} x {REPLICAS} | {what} | {one.healthy_s * 1e3:.0f} ms | {one.slow_s / one.healthy_s:.2f} x"
            f" | {one.after_s / one.healthy_s:.2f} x | {one.predicted_s / one.healthy_s:.2f} x | {acted}"
            f" | {one.stood_still_s:.2f} s | {one.moved} |"
        )
    return "\n".join(lines).replace("nan x", "-").replace("nan s", "-")
