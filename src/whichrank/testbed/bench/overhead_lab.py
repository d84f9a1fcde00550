"""What whichrank costs the lab's workloads: ranks on four nodes, the observer switched on and off within one run.

Blocks of iterations with it and without it, in pairs of random order, as in `overhead_step`: ranks switch the c10d
sensor at the iteration that they are reported; agents and each node's `whichrank run`, in the first of which the
analyzer is, are stopped meanwhile. What the ranks compute is small beside the device's time, which they sleep, as a
training process does that waits for its GPU. So this says what communication pays, and sharing the cores with the
agents of all nodes; not what computation pays.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from whichrank.errors import SensorError
from whichrank.testbed.bench.launch import Launch, end
from whichrank.testbed.bench.nursery import Nursery
from whichrank.testbed.bench.observed import check_observed
from whichrank.testbed.bench.overhead_step import blocks_of
from whichrank.testbed.bench.paired import Paired, paired
from whichrank.testbed.bench.step_job import cpu_s, order_of
from whichrank.testbed.demo.folders import new_folder
from whichrank.testbed.demo.hub import Hub
from whichrank.testbed.demo.seat import Order
from whichrank.testbed.lab.box import Lab
from whichrank.testbed.lab.namespaces import processes_in
from whichrank.testbed.lab.programs import PROGRAMS
from whichrank.testbed.lab.topology import NODE, Place, Topology

NODES, RATE = 4, "200mbit"
WORKLOADS: Final = {"ddp": 8, "3d": 16}
"""Ranks of each: with fewer, 3D would not be tensor parallel."""
PAIRS: Final = {"ddp": 75, "3d": 25}
"""Of blocks: about forty minutes of DDP, twenty of 3D."""
QUICK_PAIRS = 4
COUNTED_S: Final = 10.0
"""Of a block, at the least: two looks at a job that is well."""
SETTLE_S: Final = 7.0
"""Not counted before them: agents that were stopped look closely until all has been well for five seconds."""
WARM: Final = 10
_AHEAD: Final = 3
"""An order is on its way while ranks begin so many iterations."""
_BEGIN_WITHIN_S: Final = 120.0
_BLOCK_WITHIN_S: Final = 120.0
_END_WITHIN_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class LabCost:
    """What came of it.

    Attributes:
        workload: Name.
        layout: Its ranks, and how they are arranged.
        steps: Counted iterations of a block.
        iteration_s: Mean iteration without the observer.
        wall: Added wall time of an iteration.
        cpu: Added CPU time of all ranks.
        stolen: The same, with that of all agents and the analyzer.
        observers: Share of one core that all agents and the analyzer take together, per block.
    """

    workload: str
    layout: str
    steps: int
    iteration_s: float
    wall: Paired
    cpu: Paired
    stolen: Paired
    observers: list[float]


@dataclass
class _Blocks:
    """A figure of each block, in order: seconds of an iteration, CPU seconds of the ranks and of the observers."""

    on: list[bool]
    steps: int = 0
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    observers: list[float] = field(default_factory=list)


def lab_cost(workload: str, pairs: int, show_progress: Callable[[float], None] = lambda _: None) -> LabCost:
    """Measure one workload.

    Args:
        workload: Of `WORKLOADS`.
        pairs: Of blocks.
        show_progress: Called with the share that is done.

    Raises:
        NoLabError: No lab can be made here.
        SensorError: The job failed, or was no healthy one.
    """
    layout = PROGRAMS[workload].layout(WORKLOADS[workload]).name
    with contextlib.ExitStack() as stack:
        folder = new_folder("whichrank-lab-cost-")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        hub = Hub(lambda _: {})
        stack.callback(hub.close)
        lab = Lab.make(Topology(NODES), RATE)
        stack.callback(lab.close)
        nursery = stack.enter_context(Nursery())
        blocks = _measure(lab, hub, nursery.path, workload, layout, folder, order_of(pairs), show_progress)
    off, on = blocks_of(blocks.on, blocks.wall_s)
    cpu_off, cpu_on = blocks_of(blocks.on, blocks.cpu_s)
    observers = blocks_of(blocks.on, blocks.observers)[1]
    all_on = [cpu_s + share * wall_s for cpu_s, share, wall_s in zip(cpu_on, observers, on, strict=True)]
    return LabCost(
        workload,
        layout,
        blocks.steps,
        statistics.fmean(off),
        paired(off, on),
        paired(cpu_off, cpu_on),
        paired(cpu_off, all_on),
        observers,
    )


def _measure(
    lab: Lab,
    hub: Hub,
    nursery: Path,
    workload: str,
    layout: str,
    folder: Path,
    order: list[bool],
    show_progress: Callable[[float], None],
) -> _Blocks:
    program, ranks = PROGRAMS[workload], WORKLOADS[workload]
    arguments = ["--layout", layout] if program.has_layout else []
    launch = Launch(["-m", program.module, *arguments], ranks, folder, network=lab.network, nursery=nursery)
    hub.start()
    with (folder / "job.log").open("wb") as log, contextlib.ExitStack() as stack:
        commands = [
            subprocess.Popen(
                launch.command(number), env=launch.environment(hub.env()), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )
            for number in range(NODES)
        ]  # fmt: skip
        stack.callback(end, commands, _END_WITHIN_S)
        try:
            blocks = _run_blocks(lab, hub, ranks, order, show_progress)
        except SensorError as error:
            said = (folder / "job.log").read_text(errors="replace").strip()[-2000:]
            raise SensorError(f"{error.what}: {said or 'it says nothing'}", mend="whichrank doctor") from error
    check_observed(folder, ranks, ["c10d"])
    return blocks


def _run_blocks(
    lab: Lab, hub: Hub, world_size: int, order: list[bool], show_progress: Callable[[float], None]
) -> _Blocks:
    if not hub.wait_for(lambda: len(hub.pids) == world_size and hub.iterations.get(0, 0) >= WARM, _BEGIN_WITHIN_S):
        raise SensorError("the timed job of the lab did not begin")
    pace_s = (hub.began_ns[WARM] - hub.began_ns[WARM // 2]) / 1e9 / (WARM - WARM // 2)
    settle, steps = math.ceil(SETTLE_S / pace_s), math.ceil(COUNTED_S / pace_s)
    blocks, ranks = _Blocks(order, steps), list(hub.pids.values())
    observers = list(_observers(lab, set(ranks)))
    with _going_on(observers):
        for number, on in enumerate(order):
            begin = max(hub.iterations.values()) + _AHEAD
            for rank in hub.pids:
                hub.order(rank, Order("observe", iteration=begin, params={"on": on}))
            _wait(hub, begin)
            _signal(observers, signal.SIGCONT if on else signal.SIGSTOP)
            first = begin + settle
            _wait(hub, first)
            used, watched = _used(ranks), _used(observers)
            _wait(hub, first + steps)
            took_s = (hub.began_ns[first + steps] - hub.began_ns[first]) / 1e9
            blocks.wall_s.append(took_s / steps)
            blocks.cpu_s.append((_used(ranks) - used) / steps)
            blocks.observers.append((_used(observers) - watched) / took_s)
            show_progress((number + 1) / len(order))
    return blocks


def _wait(hub: Hub, iteration: int) -> None:
    if not hub.wait_for(lambda: iteration in hub.began_ns, _BLOCK_WITHIN_S):
        raise SensorError("the timed job of the lab does not go on")


def _observers(lab: Lab, ranks: set[int]) -> Iterator[int]:
    """`whichrank run` and `whichrank agent` of all nodes."""
    for number in range(NODES):
        for pid in processes_in(lab.network.namespace(Place(NODE, number))):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if pid not in ranks and b"whichrank" in arguments and {b"run", b"agent"} & set(arguments):
                yield pid


def _used(pids: Sequence[int]) -> float:
    return sum(map(cpu_s, pids))


@contextlib.contextmanager
def _going_on(pids: Sequence[int]) -> Iterator[None]:
    """Whatever happens, nothing stays stopped."""
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
