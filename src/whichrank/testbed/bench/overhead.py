"""`whichrank bench overhead`: runs the parts that measure cost, and puts the figures beside those of DESIGN section 7.

Each part is a module of its own (`overhead_*`), imported when it is its turn. A part that cannot be measured here, for
want of a compiler or of torch, is left out with its reason; the others are still reported. A figure and what it is
compared with come from the same run of the same process.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np

from whichrank.errors import WhichrankError
from whichrank.testbed.bench.overhead_agent import AgentCost
from whichrank.testbed.bench.overhead_job import JobCost
from whichrank.testbed.bench.overhead_lab import LabCost
from whichrank.testbed.bench.overhead_step import StepCost
from whichrank.testbed.bench.paired import Paired

SCHEMA: Final = "whichrank.overhead/1"
SIZES: Final = (64, 512, 4_096, 65_536)
QUICK_SIZES: Final = SIZES[:3]
QUICK_WINDOWS: Final = 3
AGENT_QUIET: Final = 0.15
"""Percent of a core that an agent of eight ranks may take (DESIGN section 7), and the same of ranks that are busy."""
AGENT_BUSY: Final = 0.3
JOB_QUIET: Final = 0.3
"""The same, of agent and analyzer together; and of ranks that are busy."""
JOB_BUSY: Final = 0.6
BUSY_OPS_PER_S: Final = 500.0
AGENT_MIB: Final = 40.0
MOST_OF_A_CORE: Final = 60.0
"""Percent, that the batches of 8,192 agents may take of the analyzer."""
MOST_OF_AN_IDLE_TICK_MS: Final = 5.0
MOST_MIB: Final = 2048
Unit = Literal["ns", "ms", "s", "%", "MiB", "B", "records/s"]
Verdict = Literal["", "met", "missed", "undecided"]
ShowProgress = Callable[[float], None]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure and what it is held against."""

    part: str
    """Which part of the measurement it is from."""
    what: str
    """What was measured, in words."""
    unit: Unit
    """Of all figures of the row."""
    n: int
    """How many runs, blocks or pairs of blocks."""
    of: str = "runs"
    """What `n` counts."""
    median: float
    low: float
    high: float
    spread: Literal["quartiles", "range"] = "quartiles"
    """What `low` and `high` are: first and third quartile, or smallest and largest."""
    base: float | None = None
    """What the figure is added to, in the same unit and from the same run."""
    mean: float | None = None
    """Where the mean is what counts."""
    upper: float | None = None
    """One-sided upper 95 % bound of the mean."""
    resolution: float | None = None
    """The smallest mean that could be told from none here, at 95 % one-sided."""
    theirs: str = ""
    target: str = ""
    limit: float | None = None
    """The target as a number: the figure is to be at most this (rates: at least)."""
    note: str = ""
    samples: tuple[float, ...] = ()
    """What the figures were made of, in order, where the part keeps it."""

    @property
    def verdict(self) -> Verdict:
        """Whether the target is met: by the median, or where a mean counts by its bound; empty without a target."""
        if self.limit is None:
            return ""
        if self.upper is None or self.mean is None:
            met = self.median >= self.limit if self.unit == "records/s" else self.median <= self.limit
            return "met" if met else "missed"
        if self.upper <= self.limit:
            return "met"
        return "missed" if self.mean - (self.resolution or 0.0) > self.limit else "undecided"


class Part(NamedTuple):
    """A part of the measurement: reported whether to be quick and whom to say how far it is, it gives rows."""

    title: str
    rows: Callable[[bool, ShowProgress], Iterable[Row]]


def against(row: Row, theirs: str, target: str, limit: float | None) -> Row:
    """The row with what it is held against."""
    return msgspec.structs.replace(row, theirs=theirs, target=target, limit=limit)


def from_cost(part: str, cost: Any, of: str = "runs") -> Row:
    """A row of an `overhead_ops.Cost`."""
    return Row(
        part=part, what=cost.what, unit="ns", n=cost.n, of=of, median=cost.median_ns, low=cost.low_ns,
        high=cost.high_ns, base=cost.base_ns or None,
    )  # fmt: skip


def from_samples(part: str, what: str, unit: Unit, samples: Sequence[float], of: str = "runs", note: str = "") -> Row:
    """A row of samples."""
    low, median, high = (float(q) for q in np.quantile(samples, (0.25, 0.5, 0.75)))
    return Row(
        part=part, what=what, unit=unit, n=len(samples), of=of, median=median, low=low, high=high,
        mean=float(np.mean(samples)), note=note, samples=tuple(samples),
    )  # fmt: skip


def from_paired(part: str, what: str, result: Paired, of: str, note: str = "") -> Row:
    """A row of paired blocks; shares become per cent."""
    return Row(
        part=part, what=what, unit="%", n=result.n, of=of, median=100 * result.median, low=100 * result.low,
        high=100 * result.high, mean=100 * result.mean, upper=100 * result.upper,
        resolution=100 * result.resolution, note=note, samples=tuple(100 * share for share in result.shares),
    )  # fmt: skip


# ---- the parts -------------------------------------------------------------------------------------------------------


def ring_rows(_quick: bool, _report: ShowProgress) -> Iterable[Row]:
    """Ring, trace ID, operation; and the memory of a rank, which is a fact and no measurement."""
    from whichrank.model.rows import FRAME
    from whichrank.ring.layout import RING
    from whichrank.testbed.bench.overhead_ops import ring_costs

    held = {
        "ring push": ("", "≤ 50 ns", 50.0),
        "trace ID": ("CCL-D: nanoseconds, 188× faster than asking a server", "≤ 20 ns", 20.0),
    }
    for cost in ring_costs():
        yield against(from_cost("ring", cost), *held.get(cost.what, ("", "", None)))
    sizes = (
        ("probing frame", FRAME.itemsize, "CCL-D: 1184 B", "1184 B", 1184.0),
        ("whole ring", RING.itemsize, "", "≤ 1 MiB", 2.0**20),
    )
    for what, size, *held_against in sizes:
        row = Row(part="ring", what=f"memory per rank, {what}", unit="B", n=1, median=size, low=size, high=size)
        yield against(row, *held_against)  # type: ignore[arg-type]  # three of them, in order


def sensor_rows(_quick: bool, show_progress: ShowProgress) -> Iterable[Row]:
    """Each c10d sensor per operation, and the socket sensor per message."""
    from whichrank.testbed.bench.overhead_ops import BACKENDS, VARIANTS, sensor_costs
    from whichrank.testbed.bench.overhead_socket import socket_cost

    held = {("fake", "cpp"): ("", "about 260 ns", None), ("fake", "python"): ("", "about 5.6 µs", None)}
    kinds = [(backend, variant) for backend in BACKENDS for variant in VARIANTS]
    for number, (backend, variant) in enumerate(kinds, 1):
        for cost in sensor_costs((variant,), (backend,)):
            yield against(from_cost("sensor", cost, "pairs of blocks"), *held.get((backend, variant), ("", "", None)))
        show_progress(number / (len(kinds) + 1))
    yield from_cost("sensor", socket_cost(), "pairs of blocks")


def agent_rows(quick: bool, _report: ShowProgress) -> Iterable[Row]:
    """The agent's share of a core and its memory; and of that what its looks at connections take."""
    from whichrank.testbed.bench import overhead_agent
    from whichrank.testbed.bench.overhead_job import job_cost
    from whichrank.testbed.bench.overhead_tcp import RANKS, tcp_cost

    windows = QUICK_WINDOWS if quick else overhead_agent.WINDOWS
    for ops_per_s in overhead_agent.OPS_PER_S:
        yield from rows_of_agent(overhead_agent.agent_cost(ops_per_s=ops_per_s, windows=windows))
    for ops_per_s in overhead_agent.OPS_PER_S:
        yield row_of_job(job_cost(ops_per_s, windows=windows))
    polls = tcp_cost()
    node = f"{RANKS} ranks, {polls.sockets} sockets"
    yield from_samples("agent", f"tcp sensor, one look ({node})", "ms", polls.poll_ms)
    share = from_samples("agent", "tcp sensor, share of one core while all is well", "%", polls.share_percent)
    yield against(share, "", "≤ 0.2 % of one core", 0.2)


def rows_of_agent(cost: AgentCost) -> list[Row]:
    """The rows of an `AgentCost`."""
    load = f"{cost.ranks} ranks at {cost.ops_per_s:,.0f} ops/s each"
    lost = f"{cost.lost_records:,} records lost" if cost.lost_records else ""
    cpu = Row(
        part="agent", what=f"agent, share of one core ({load})", unit="%", n=cost.windows,
        of=f"windows of {cost.window_s:g} s", median=cost.cpu_percent, low=cost.low_percent, high=cost.high_percent,
        note=lost,
    )  # fmt: skip
    memory = Row(
        part="agent", what=f"agent, resident memory ({load})", unit="MiB", n=1, median=cost.rss_mib, low=cost.rss_mib,
        high=cost.rss_mib,
    )  # fmt: skip
    share = AGENT_BUSY if cost.ops_per_s > BUSY_OPS_PER_S else AGENT_QUIET
    return [
        against(cpu, "CCL-D: 0.3 % of the node's CPU", f"≤ {share:g} % of one core", share),
        against(memory, "", f"≤ {AGENT_MIB:g} MiB", AGENT_MIB),
    ]


def row_of_job(cost: JobCost) -> Row:
    """The row of a `JobCost`."""
    load = f"{cost.ranks} ranks at {cost.ops_per_s:,} ops/s each"
    what, of = f"agent and analyzer, share of one core ({load})", f"windows of {cost.window_s:g} s"
    row = from_samples("agent", what, "%", cost.percent, of)
    share = JOB_BUSY if cost.ops_per_s > BUSY_OPS_PER_S else JOB_QUIET
    return against(row, "", f"≤ {share:g} % of one core", share)


def analyzer_rows(quick: bool, show_progress: ShowProgress) -> Iterable[Row]:
    """What the analyzer takes in per second, and how long it takes to locate, by size of the job."""
    from whichrank.testbed.bench import overhead_locate

    for figure in overhead_locate.ingest():
        held = ("", "≥ 2 M records/s", 2e6) if figure.what == "ingest" else ("", "", None)
        yield against(from_figure("analyzer", figure), *held)
    ranks = QUICK_SIZES if quick else SIZES
    for done, size in enumerate(ranks, 1):
        for where in overhead_locate.WHERE:
            for figure in overhead_locate.location(size, where):
                yield against(from_figure("analyzer", figure), *located(figure.what, size))
        for figure in overhead_locate.steady(size):
            yield against(from_figure("analyzer", figure), *steady_limit(figure.what, size))
        for figure in overhead_locate.slow_poll(size):
            yield against(from_figure("analyzer", figure), "CCL-D: 146 ms (slow, 16 GPUs)", "", None)
        show_progress(done / len(ranks))


def steady_limit(what: str, ranks: int) -> tuple[str, str, float | None]:
    """What an analyzer of the largest job is held against while all is well."""
    if ranks != SIZES[-1]:
        return "", "", None
    if "batch" in what:
        return "", f"≤ {MOST_OF_A_CORE:g} % of one core", MOST_OF_A_CORE
    if "nothing" in what:
        return "", f"≤ {MOST_OF_AN_IDLE_TICK_MS:g} ms", MOST_OF_AN_IDLE_TICK_MS
    return ("", f"≤ {MOST_MIB:,} MiB", MOST_MIB) if "memory" in what else ("", "", None)


def located(what: str, ranks: int) -> tuple[str, str, float | None]:
    """What a location is held against, at this size."""
    theirs = "CCL-D: 108 ms (hang, 16 GPUs)"
    limits = {4_096: 20.0, 65_536: 300.0}
    if "location" not in what:
        return "", "", None
    return (theirs, f"≤ {limits[ranks]:g} ms", limits[ranks]) if ranks in limits else (theirs, "", None)


def from_figure(part: str, figure: Any) -> Row:
    """A row of an `overhead_locate.Figure`, whose ends are the fastest and the slowest run."""
    what = f"{figure.what}, {figure.ranks:,} ranks"
    return Row(
        part=part, what=what, unit=figure.unit, n=figure.n, median=figure.median, low=figure.low, high=figure.high,
        spread="range",
    )  # fmt: skip


def step_rows(quick: bool, show_progress: ShowProgress) -> Iterable[Row]:
    """A training step whose computation fills the cores."""
    from whichrank.testbed.bench.overhead_step import FULL, QUICK, step_cost

    return rows_of_step(step_cost(QUICK if quick else FULL, show_progress))


def rows_of_step(cost: StepCost) -> list[Row]:
    """The rows of a `StepCost`."""
    of, runs = f"pairs of {cost.steps} steps", "pairs of runs"
    step = f"{cost.step_ms:.0f} ms step, 2 ranks on 2 cores, {cost.ops:.0f} ops and {cost.messages:.0f} messages"
    need = f"a cost of 0.1 % would need {cost.wall.pairs_for(0.001):,} pairs with this noise"
    switched = from_paired("step", f"observer on and off, wall time ({step})", cost.wall, of, need)
    theirs = "MegaTrace 0.16 %, Greyhound 0.39 %, CCL-D < 1 %"
    busy = f"the ranks keep {100 * cost.busy:.0f} % of the cores busy"
    agent = from_samples("step", "agent, share of one core", "%", [100 * s for s in cost.agent], "blocks")
    analyzer = from_samples("step", "analyzer, share of one core", "%", [100 * s for s in cost.analyzer], "blocks")
    return [
        against(switched, theirs, "≤ 0.1 % of a 100 ms step", 0.1),
        from_paired("step", "observer on and off, CPU time of the ranks", cost.cpu, of, busy),
        agent,
        analyzer,
        from_paired("step", "fresh runs with and without, wall time of a step", cost.whole_wall, runs),
        from_paired("step", "fresh runs with and without, CPU time of the ranks", cost.whole_cpu, runs),
        from_samples("step", "start and end of a run, added", "s", cost.start_s, runs),
    ]


def lab_rows(quick: bool, show_progress: ShowProgress) -> Iterable[Row]:
    """Iterations of the lab's workloads."""
    from whichrank.testbed.bench import overhead_lab as lab

    for number, workload in enumerate(lab.WORKLOADS):

        def report_part(share: float, done: int = number) -> None:
            show_progress((done + share) / len(lab.WORKLOADS))

        cost = lab.lab_cost(workload, lab.QUICK_PAIRS if quick else lab.PAIRS[workload], report_part)
        yield from rows_of_lab(cost)


def rows_of_lab(cost: LabCost) -> list[Row]:
    """The rows of a `LabCost`."""
    of, job = f"pairs of {cost.steps} iterations", f"{cost.workload}, {cost.layout} on 4 nodes"
    iteration = f"{job}, {1e3 * cost.iteration_s:.0f} ms an iteration"
    wall = from_paired("lab", f"observer on and off, wall time ({iteration})", cost.wall, of)
    return [
        against(wall, "MegaTrace 0.16 %, Greyhound 0.39 %, CCL-D < 1 %", "≤ 0.1 % of a 100 ms step", 0.1),
        from_paired("lab", f"observer on and off, CPU time of the ranks ({job})", cost.cpu, of),
        from_paired("lab", f"observer on and off, CPU time of ranks, agents and analyzer ({job})", cost.stolen, of),
        from_samples(
            "lab", f"four agents and the analyzer, share of one core ({job})", "%",
            [100 * share for share in cost.observers], "blocks",
        ),
    ]  # fmt: skip


PARTS: Final = {
    "ring": Part("ring push, trace ID, operation", ring_rows),
    "sensor": Part("sensors per operation", sensor_rows),
    "agent": Part("agent", agent_rows),
    "analyzer": Part("analyzer: ingest, locate, tick", analyzer_rows),
    "step": Part("training step", step_rows),
    "lab": Part("the lab's workloads", lab_rows),
}


# ---- all together ----------------------------------------------------------------------------------------------------


def measure(names: Sequence[str], *, quick: bool, show_progress: Callable[[str, float], None]) -> dict[str, Any]:
    """Run parts one after the other.

    Args:
        names: Which; keys of `PARTS`.
        quick: A smaller n, to see that it works; not for the docs.
        show_progress: Called with the name of a part and the share of it that is done.

    Returns:
        What `tables.overhead_table` prints: `schema`, `quick`, `machine`, `rows` and `skipped` (part to reason).
    """
    rows: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    load_before = os.getloadavg()
    for name in names:
        show_progress(name, 0.0)
        try:
            for row in PARTS[name].rows(quick, lambda share, name=name: show_progress(name, share)):  # type: ignore[misc]
                rows.append(msgspec.to_builtins(row) | {"verdict": row.verdict})
        except (WhichrankError, OSError, subprocess.SubprocessError) as error:
            skipped[name] = error.what if isinstance(error, WhichrankError) else str(error)
        show_progress(name, 1.0)
    return {"schema": SCHEMA, "quick": quick, "machine": machine(load_before), "rows": rows, "skipped": skipped}


def machine(load_before: Sequence[float]) -> dict[str, Any]:
    """The machine in facts; `load_*` are its load averages over 1, 5 and 15 minutes before and after."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": _torch_version(),
        "load_before": [round(load, 2) for load in load_before],
        "load_after": [round(load, 2) for load in os.getloadavg()],
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The name of the processor; its architecture where the kernel does not say more."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    found = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return found or platform.machine()


def _torch_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"
