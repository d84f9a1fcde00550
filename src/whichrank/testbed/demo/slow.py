"""Slow jobs: entries like those of the catalogue, and what each rank is reported at the start.

A slowdown is drawn with a magnitude, which is the name of its variant: "x1.5" makes the device time of the rank 1.5
times as long.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from whichrank.testbed.demo.fault import ALL_PHASES, Fault, Variant
from whichrank.testbed.demo.layout import Layout
from whichrank.testbed.demo.load import Load

COMPUTE_SLOW = ("compute_slow",)
LINK_SLOW = ("communication_slow",)
IMBALANCE = ("imbalance",)
MAGNITUDES = ("x1.1", "x1.2", "x1.5", "x2", "x5")
ITERATION_S = 0.25
"""About what an iteration of the demo takes."""
_OF_DEVICES = (
    "slow-compute", "slow-layers", "slow-forward", "slow-backward", "slow-start", "flap", "slow-data",
    "slow-compute-nodes", "two-slow", "slow-every-rank",
)  # fmt: skip
"""Faults that add device time to ranks, or a wait for data, and nothing else."""
PHASES = {"slow-forward": 1 / 3, "slow-backward": 2 / 3}
"""Faults of one phase, and its share of the device time."""
_DEVICE = ("--device-ms", "6")
"""So the device takes most of an iteration, as it should, and two cores are not the bottleneck."""
_HOST_MS = 20.0
"""Computation on the host in one piece, which other processes can hold up; the other ranks still fit on one core."""
_PIPELINES = ("pp2-dp4", "pp4-dp2", "tp2-pp2-dp2")
_REPLICATED = ("dp8", "tp2-dp4", "pp2-dp4", "tp2-pp2-dp2")
"""Where one replica can have more rows than another, and operations within it say so in all but the first."""
_SPREAD = ("dp8", "tp2-dp4")
"""Whose data-parallel rings go through all nodes; tensor-parallel groups stay within one."""
_NODES = 4
_TURN = 3
"""Iterations for which a rank is slow before the next one is."""
_LONG = 2.5
"""Times the device time of the other stages that a long one has."""


def _magnitudes(effect: Any = "slow", observed: str = "") -> tuple[Variant, ...]:
    return tuple(Variant(name, effect, observed) for name in MAGNITUDES)


def _rates() -> tuple[Variant, ...]:
    return tuple(Variant(rate, "slow-link", "") for rate in ("200mbit", "100mbit", "50mbit"))


SLOW: dict[str, Fault] = {
    fault.name: replace(fault, job_args=fault.job_args or _DEVICE)
    for fault in (
        Fault("slow-compute", "The device of one rank takes longer, from some iteration on.", "in-program", "drag",
              _magnitudes(), do="drag", causes=COMPUTE_SLOW, phase=ALL_PHASES),
        Fault("slow-layers", "Only the first layer that a rank holds takes longer.", "in-program", "drag",
              (Variant("x2", "slow", ""), Variant("x5", "slow", "")), do="drag", causes=COMPUTE_SLOW),
        Fault("slow-forward", "The device of one rank takes longer in forward passes only.", "in-program", "drag",
              (Variant("x3", "slow", ""), Variant("x5", "slow", "")), do="drag", causes=COMPUTE_SLOW, phase="forward"),
        Fault("slow-backward", "The device of one rank takes longer in backward passes only.", "in-program", "drag",
              (Variant("x2", "slow", ""), Variant("x3", "slow", "")), do="drag", causes=COMPUTE_SLOW, phase="backward"),
        Fault("slow-start", "The device of one rank takes longer from the first iteration on.", "in-program", "hello",
              _magnitudes(), causes=COMPUTE_SLOW),
        Fault("flap", "The device of one rank is slow for some iterations, and for some it is not.", "in-program",
              "drag", (Variant("x2", "slow", ""), Variant("x5", "slow", "")), do="drag", causes=COMPUTE_SLOW),
        Fault("slow-data", "One rank waits for its next batch in each iteration.", "in-program", "drag",
              (Variant("x1.2", "slow", ""), Variant("x1.5", "slow", ""), Variant("x2", "slow", "")), do="drag",
              causes=COMPUTE_SLOW, reasons=("waiting for data",), phase="data"),
        Fault("gc-storm", "One rank makes garbage in each iteration, and collects it.", "in-program", "drag",
              tuple(Variant(f"{n}k", "slow", "") for n in (40, 100, 300)), do="drag", causes=COMPUTE_SLOW,
              reasons=("garbage collection",)),
        Fault("cpu-limit", "A cgroup limits the CPU time of one rank.", "outside", "cpu",
              (Variant("0.02", "slow", ""), Variant("0.03", "slow", "")), causes=COMPUTE_SLOW, reasons=("CPU limit",),
              needs_cgroup=True),
        Fault("cpu-contention", "Other processes compute on the core to which one rank is bound.", "outside", "cpu",
              (Variant("1", "slow", ""), Variant("2", "slow", ""), Variant("4", "slow", "")), causes=COMPUTE_SLOW,
              reasons=("CPU contention",), job_args=("--device-ms", "12"), host_ms=_HOST_MS),
        Fault("slow-link", "What one of four nodes sends to the others is limited.", "outside", "link",
              _rates(), causes=LINK_SLOW, nodes=_NODES, layouts=_SPREAD),
        Fault("slow-inbound", "What the other nodes send to one of four is limited, at the switch.", "outside", "link",
              _rates()[1:], causes=LINK_SLOW, nodes=_NODES, layouts=_SPREAD),
        Fault("lossy-link", "Of what one of four nodes sends, some is lost on the way.", "outside", "link",
              (Variant("5%", "slow-link", ""),), causes=LINK_SLOW, nodes=_NODES, layouts=_SPREAD, tool="nft"),
        Fault("slow-link-and-compute", "The same, and a rank of another node computes more slowly.", "outside", "link",
              _rates()[1:], do="drag", causes=(*COMPUTE_SLOW, "mixed_slow", *LINK_SLOW), nodes=_NODES, layouts=_SPREAD),
        Fault("slow-compute-nodes", "The device of one rank takes longer; ranks are on four nodes.", "in-program",
              "drag", (Variant("x2", "slow", ""),), do="drag", causes=COMPUTE_SLOW, nodes=_NODES, layouts=_SPREAD),
        Fault("two-slow", "The devices of two ranks take longer, one more than the other.", "in-program", "drag",
              (Variant("x2", "slow", ""),), do="drag", causes=COMPUTE_SLOW),
        Fault("slow-every-rank", "All devices take longer alike, from some iteration on.", "in-program", "drag",
              (Variant("x1.5", "slow-all", ""), Variant("x2", "slow-all", "")), do="drag", causes=COMPUTE_SLOW),
        Fault("long-last-stage", "The last pipeline stage has more to do, by design.", "healthy", "hello",
              (Variant("x2.5", "uneven", ""),), causes=IMBALANCE, layouts=_PIPELINES),
        Fault("more-tokens", "The batches of one replica have more rows than those of the others.", "healthy", "hello",
              (Variant("x1.5", "uneven", ""), Variant("x2", "uneven", "")), causes=IMBALANCE, layouts=_REPLICATED),
        Fault("longer-sequences", "All batches have more rows from some iteration on.", "healthy", "drag",
              (Variant("x1.5", "none", ""), Variant("x2", "none", "")), do="drag"),
        Fault("wander", "The device of one rank after the other takes longer, for some iterations each.", "healthy",
              "hello", (Variant("x1.5", "uneven", ""), Variant("x2", "uneven", "")), causes=IMBALANCE),
        Fault("absorbed", "A rank is slower, and the long last stage hides it.", "healthy", "drag",
              (Variant("x1.5", "none", ""),), do="drag", layouts=_PIPELINES),
    )
}  # fmt: skip


def factor_of(variant: str) -> float:
    """The number in the name of a variant."""
    return float(variant.removeprefix("x")) if variant.startswith("x") else 1.0


def load_of(fault: str, variant: str, second: bool = False) -> dict[str, Any]:
    """What makes a victim slow, as the parameters of an order.

    Args:
        fault: name.
        variant: its magnitude.
        second: it is the lesser one of two.
    """
    factor = factor_of(variant)
    if fault == "slow-data" or (fault == "two-causes" and second):
        return asdict(Load(data_s=(factor - 1) * ITERATION_S))
    if fault == "gc-storm":
        return asdict(Load(objects=int(variant.removesuffix("k")) * 1000))
    if fault == "longer-sequences":
        return asdict(Load(factor, rows=factor))
    if fault == "flap":
        return asdict(Load(factor, on=8, off=14))
    if fault == "slow-layers":
        return asdict(Load(factor, layers=1))
    if fault in PHASES:
        return asdict(Load(factor, phase=fault.removeprefix("slow-")))
    return asdict(Load(1 + 0.8 * (factor - 1) if second else factor))


def added_s_at_most(fault: str, variant: str, device_s: float) -> float | None:
    """Seconds by which what was done makes an iteration longer at the most; None if that does not follow from it.

    Args:
        fault: name.
        variant: its magnitude.
        device_s: Device time of the rank in an iteration; 0: not known.
    """
    if fault not in _OF_DEVICES:
        return None
    load = Load(**load_of(fault, variant))
    return load.data_s or ((load.factor - 1) * device_s * PHASES.get(fault, 1.0) if device_s else None)


def settings_of(fault: str, variant: str, rank: int, victim: int, layout: Layout) -> dict[str, Any]:
    """What a rank is reported at the start."""
    factor = factor_of(variant)
    load: Load | None = None
    if fault in ("long-last-stage", "absorbed") and layout.index(rank, "pp") == layout.pp - 1:
        load = Load(_LONG)
    elif fault == "more-tokens" and layout.index(rank, "dp") == layout.index(victim, "dp"):
        load = Load(factor, rows=factor)
    elif fault == "wander":
        load = Load(factor, on=_TURN, off=_TURN * (layout.world_size - 1), after=_TURN * rank)
    elif fault == "slow-start" and rank == victim:
        load = Load(factor)
    return {"load": asdict(load)} if load else {}
