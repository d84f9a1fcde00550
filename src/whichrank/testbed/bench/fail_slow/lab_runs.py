"""Series that are recorded in the lab: real ranks on four nodes, slowed down and let go again.

A run trains under `whichrank run --record`. Iteration times are those that whichrank has of each rank: the optimizer
steps in the recorded telemetry. What was done stays in this process: another program computes on the core of one rank
(CPU contention), or flows of others share the cables of one node (congestion), from one iteration to another. Every
third run is healthy.

All ranks of a run wait for the slowest in each iteration, so its eight series are not independent. Tables give the
number of runs beside that of series.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from whichrank.errors import WhichrankError
from whichrank.testbed.bench.fail_slow.other_load import OtherLoad
from whichrank.testbed.bench.fail_slow.series import FILE_NAME, Series, read_series
from whichrank.testbed.bench.launch import Launch, end
from whichrank.testbed.bench.nursery import Nursery
from whichrank.testbed.bench.results_file import append_result, make_ready
from whichrank.testbed.demo.folders import new_folder
from whichrank.testbed.demo.hub import Hub
from whichrank.testbed.demo.strikes import Hogs
from whichrank.testbed.lab.box import Lab
from whichrank.testbed.lab.programs import PROGRAMS
from whichrank.testbed.lab.topology import Topology
from whichrank.wire.tape import FILE_NAME as TAPE_NAME
from whichrank.wire.tape import Tape

WORKLOAD: Final = "ddp"
RANKS, NODES, RATE = 8, 4, "200mbit"
DEVICE_MS, HOST_MS = 8.0, 2.0
"""Of a layer on the device, and of a batch on the host: iterations of a quarter of a second, mostly of the device."""
KINDS: Final = ("healthy", "cpu-contention", "congestion")
MAGNITUDES: Final = {"healthy": ("",), "cpu-contention": ("1", "2", "4"), "congestion": ("2", "4", "8")}
"""Competing processes, and competing flows."""
FIRST_LEFT_OUT: Final = 3
"""Iterations of a rank: whichrank leaves them out as well (`detect/own_times.py`, WARM_UP)."""
_QUIET: Final = (40, 60)
_FAULTY: Final = (25, 40)
_AFTER: Final = (25, 35)
"""Iterations before the fault, with it, and after it."""
_BEGIN_WITHIN_S: Final = 120.0
_END_WITHIN_S: Final = 20.0
_RUN_WITHIN_S: Final = 180.0


class RecordingError(WhichrankError):
    """A run of the lab gave no series."""


class Lasting(Protocol):
    """A fault that can be taken away."""

    def close(self) -> None:
        """Take it away."""


@dataclass(frozen=True)
class Run:
    """What is done in a run, drawn by its number.

    Attributes:
        kind: Of `KINDS`.
        magnitude: Of the fault.
        victim: The rank whose core or whose node's cables are shared.
        onset: The iteration in which the fault is set.
        relief: In which it is taken away.
        length: Iterations of the run.
    """

    number: int
    kind: str
    magnitude: str
    victim: int
    onset: int
    relief: int
    length: int

    @property
    def name(self) -> str:
        """Of the run."""
        return f"run-{self.number}"


def draw(number: int) -> Run:
    """The run of this number: kinds take turns, all else is drawn."""
    rng = random.Random(f"fail-slow/{number}")
    kind = KINDS[number % len(KINDS)]
    onset = rng.randint(*_QUIET)
    relief = onset + rng.randint(*_FAULTY)
    return Run(
        number, kind, rng.choice(MAGNITUDES[kind]), rng.randrange(RANKS), onset, relief, relief + rng.randint(*_AFTER)
    )


def record(folder: Path, runs: int, show_progress: Callable[[int, str], None]) -> None:
    """Record runs, and append the series of each; goes on where it was.

    Args:
        folder: Where the series go.
        runs: How many there shall be.
        show_progress: Called after each run, with its number and a sentence.

    Raises:
        NoLabError: No lab can be made here.
        UsageError: The folder cannot be written.
    """
    path = folder / FILE_NAME
    make_ready(path)
    known = {series.run for series in read_series(folder)} if path.stat().st_size else set[str]()
    with contextlib.ExitStack() as stack:
        lab = Lab.make(Topology(NODES), RATE)
        stack.callback(lab.close)
        nursery = stack.enter_context(Nursery())
        for run in map(draw, range(runs)):
            if run.name in known:
                continue
            try:
                found = record_one(run, lab, nursery.path)
            except RecordingError as error:
                show_progress(run.number, f"{run.name}: {error.what}")
                continue
            for series in found:
                append_result(path, series)
            what = f"{run.kind} {run.magnitude}".strip()
            show_progress(run.number, f"{run.name}: {what}, {len(found)} series of {len(found[0].values)} iterations")


def record_one(run: Run, lab: Lab, nursery: Path) -> list[Series]:
    """Train once, with the fault of this run, and read the iteration times of all ranks.

    Raises:
        RecordingError: The job failed.
    """
    with contextlib.ExitStack() as stack:
        folder = new_folder("whichrank-fail-slow-")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        hub = Hub(lambda _: {})
        stack.callback(hub.close)
        job = ["-m", PROGRAMS[WORKLOAD].module, "--iterations", str(run.length)]
        job += ["--device-ms", str(DEVICE_MS), "--host-ms", str(HOST_MS)]
        launch = Launch(job, RANKS, folder, options=["--record"], network=lab.network, nursery=nursery)
        hub.start()
        log = stack.enter_context((folder / "job.log").open("wb"))
        commands = [
            subprocess.Popen(
                launch.command(node), env=launch.environment(hub.env()), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )
            for node in range(NODES)
        ]  # fmt: skip
        stack.callback(end, commands, _END_WITHIN_S)
        with OtherLoad() as load:
            at_ns = _break(run, lab, hub)
            if not hub.wait_for(lambda: hub.iterations.get(0, 0) >= run.length - 1, _RUN_WITHIN_S):
                raise RecordingError("the job did not go on", where=_last_of(folder / "job.log"))
        for command in commands:
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(_END_WITHIN_S)
        return list(_series(run, folder / TAPE_NAME, at_ns, load))


def _break(run: Run, lab: Lab, hub: Hub) -> list[int]:
    """Set the fault and take it away; returns both moments (CLOCK_MONOTONIC, ns), none for a healthy run."""
    if not hub.wait_for(lambda: len(hub.pids) == RANKS and hub.iterations.get(0, 0) >= 1, _BEGIN_WITHIN_S):
        raise RecordingError("the job did not begin")
    if run.kind == "healthy":
        return []
    if not hub.wait_for(lambda: hub.iterations[0] >= run.onset, _RUN_WITHIN_S):
        raise RecordingError("the job did not go on before the fault")
    with contextlib.closing(_fault(run, lab, hub)):
        at_ns = [time.monotonic_ns()]
        hub.wait_for(lambda: hub.iterations[0] >= run.relief, _RUN_WITHIN_S)
        at_ns.append(time.monotonic_ns())
    return at_ns


def _fault(run: Run, lab: Lab, hub: Hub) -> Lasting:
    """Set the fault; it lasts until it is closed."""
    if run.kind == "cpu-contention":
        return Hogs(hub.pids[run.victim], run.victim % (os.cpu_count() or 1), int(run.magnitude))
    node = run.victim * NODES // RANKS
    return lab.network.crowd(node, (node + NODES // 2) % NODES, int(run.magnitude))


def _series(run: Run, tape: Path, at_ns: list[int], load: OtherLoad) -> Iterator[Series]:
    """Iteration times of each rank, from the optimizer steps in the telemetry.

    Raises:
        RecordingError: Steps of a rank are missing.
    """
    steps = _steps(tape)
    if sorted(steps) != list(range(RANKS)):
        raise RecordingError(f"there are steps of the ranks {sorted(steps)} only")
    for rank, (number, ended_ns) in sorted(steps.items()):
        if (np.diff(number) != 1).any():
            raise RecordingError(f"steps of rank {rank} are missing")
        ended_ns = ended_ns[FIRST_LEFT_OUT:]
        first = [int(np.searchsorted(ended_ns[1:], moment, side="right")) for moment in at_ns]
        yield Series(
            name=f"{run.name}-rank-{rank}",
            kind=run.kind,
            values=[round(seconds, 6) for seconds in (np.diff(ended_ns) / 1e9).tolist()],
            changes=first,
            run=run.name,
            magnitude=run.magnitude,
            others_cores=[round(cores, 2) for cores in load.cores(ended_ns[1:] / 1e9).tolist()],
        )


def _steps(tape: Path) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """By rank: the numbers of its optimizer steps and when each was made (ns, on the clock of its host), in order."""
    from whichrank.store.store import Store

    store, found = Store(), dict[int, list[tuple[int, int]]]()
    for entry in Tape(tape):
        if entry.batch is not None:
            fed = store.feed(entry.batch, entry.now_s)
            rows = fed.steps["row"]
            for rank, *step in zip(
                fed.steps["rank"].tolist(), rows["counter"].tolist(), rows["t_end_ns"].tolist(), strict=True
            ):
                found.setdefault(rank, []).append((step[0], step[1]))
    columns = {rank: np.array(sorted(steps), np.int64) for rank, steps in found.items()}
    return {rank: (both[:, 0], both[:, 1]) for rank, both in columns.items()}


def _last_of(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-500:] or "it says nothing"
