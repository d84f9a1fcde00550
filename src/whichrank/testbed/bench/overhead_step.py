"""What whichrank costs a training step whose computation fills the cores.

Two measurements of one job (`step_job`: two ranks on two cores, a step of 100 ms, no sleeping):
`switched` turns the observer on and off within one run, block by block, and resolves best; `whole` compares fresh runs
with and without `whichrank run`, in turn, and sees what cannot be switched: the preloaded socket sensor, the heartbeat
thread, the wrapper, the start. The whole job, the agent and the analyzer share the same two cores, also on a larger
machine, so nothing of the cost can hide on an idle one.

A wall time says what a user pays, but on a shared machine it is noisy. So three more figures stand beside it:
what the noise lets us tell from zero, the CPU time of the ranks, and the CPU time of agent and analyzer.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from whichrank.errors import SensorError
from whichrank.testbed.bench.launch import own_environment
from whichrank.testbed.bench.observed import check_observed
from whichrank.testbed.bench.paired import Paired, paired
from whichrank.testbed.bench.step_job import RANKS, STEP_S, Plan, StepTimes

START_LIMIT_S = 120.0
SLOWEST = 10.0
"""How much slower than planned a busy machine may be before a run is given up."""
WHOLE_PAIRS = 2
"""A whole run: four blocks, none switched."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run.

    Attributes:
        pairs: Pairs of blocks with the observer on and off.
        runs: Pairs of whole runs with and without.
    """

    pairs: int
    runs: int


FULL, QUICK = Effort(pairs=150, runs=10), Effort(pairs=6, runs=2)


@dataclass(frozen=True, slots=True)
class StepCost:
    """What came of it; relative costs are shares of a step.

    Attributes:
        step_ms: Mean step without the observer.
        busy: Share of the two cores that the ranks use without it.
        ops: Operations recorded in a step.
        messages: TCP messages in a step.
        steps: Counted steps in a block.
        wall: Added wall time, observer switched on and off.
        cpu: Added CPU time of the ranks, likewise.
        agent: Share of one core that the agent takes, per block.
        analyzer: The same of `whichrank run`.
        whole_wall: Added wall time of a step, fresh runs with and without.
        whole_cpu: Added CPU time of the ranks, likewise.
        start_s: Seconds that the start and end of a run take longer, per pair of runs.
        load: One-minute load average of each pair of runs.
    """

    step_ms: float
    busy: float
    ops: float
    messages: float
    steps: int
    wall: Paired
    cpu: Paired
    agent: list[float]
    analyzer: list[float]
    whole_wall: Paired
    whole_cpu: Paired
    start_s: list[float]
    load: list[float]


def step_cost(effort: Effort = FULL, show_progress: Callable[[float], None] = lambda _: None) -> StepCost:
    """Measure all of it.

    Args:
        effort: How much is run; `FULL` takes about a quarter of an hour.
        show_progress: Called with the share that is done.

    Raises:
        SensorError: A run failed, or its ranks were not fully observed.
    """
    with _two_cores(), tempfile.TemporaryDirectory(prefix="whichrank-step-") as name:
        folder = Path(name)
        batch = _run(folder, Plan(result="", batch=0, pairs=1), observed=False)[0].batch
        show_progress(0.02)
        whole = []
        for run in range(effort.runs):
            whole.append(_whole_pair(folder, batch, run))
            show_progress(0.02 + 0.4 * (run + 1) / effort.runs)
        reported, _ = _run(folder, Plan(result="", batch=batch, pairs=effort.pairs, switch=True), observed=True)
        show_progress(1.0)
    return _sum_up(reported, whole)


@dataclass(frozen=True, slots=True)
class _Whole:
    """A pair of whole runs: seconds of a step, CPU seconds of a step, seconds around the steps; without, with."""

    wall_s: tuple[float, float]
    cpu_s: tuple[float, float]
    around_s: tuple[float, float]
    load: float


def _whole_pair(folder: Path, batch: int, number: int) -> _Whole:
    load = os.getloadavg()[0]
    reported: dict[bool, tuple[float, float, float]] = {}
    for observed in random.Random(number).sample((False, True), 2):
        run, took_s = _run(folder, Plan(result="", batch=batch, pairs=WHOLE_PAIRS), observed=observed)
        reported[observed] = statistics.fmean(run.wall_s), statistics.fmean(run.cpu_s), took_s - run.trained_s
    wall, cpu, around = zip(reported[False], reported[True], strict=True)
    return _Whole(wall, cpu, around, load)


def _sum_up(reported: StepTimes, whole: Sequence[_Whole]) -> StepCost:
    plan = Plan(result="")
    off, on = blocks_of(reported.on, reported.wall_s)
    cpu_off, cpu_on = blocks_of(reported.on, reported.cpu_s)

    def shares(seconds: Sequence[float]) -> list[float]:
        ours = blocks_of(reported.on, seconds)[1]
        return [used / (plan.steps * step_s) for used, step_s in zip(ours, on, strict=True)]

    return StepCost(
        step_ms=1e3 * statistics.fmean(off),
        busy=statistics.fmean(cpu_off) / statistics.fmean(off) / RANKS,
        ops=reported.ops,
        messages=reported.messages,
        steps=plan.steps,
        wall=paired(off, on),
        cpu=paired(cpu_off, cpu_on),
        agent=shares(reported.agent_cpu_s),
        analyzer=shares(reported.run_cpu_s),
        whole_wall=paired([w.wall_s[0] for w in whole], [w.wall_s[1] for w in whole]),
        whole_cpu=paired([w.cpu_s[0] for w in whole], [w.cpu_s[1] for w in whole]),
        start_s=[w.around_s[1] - w.around_s[0] for w in whole],
        load=[w.load for w in whole],
    )


def blocks_of(on: Sequence[bool], figures: Sequence[float]) -> tuple[list[float], list[float]]:
    """The figures of the blocks without and with, each in order of the pairs.

    Raises:
        ValueError: A pair of blocks has not one of each.
    """
    without, with_it = [], []
    for place in range(0, len(on), 2):
        first, second = on[place : place + 2]
        if first == second:
            raise ValueError(f"blocks {place} and {place + 1} are both {'on' if first else 'off'}")
        one, other = figures[place : place + 2]
        without.append(other if first else one)
        with_it.append(one if first else other)
    return without, with_it


# ---- running the job -------------------------------------------------------------------------------------------------


def _run(folder: Path, plan: Plan, *, observed: bool) -> tuple[StepTimes, float]:
    """One job; what it reported, and the seconds from its start to its end."""
    result, output = folder / "result.json", folder / f"run-{time.monotonic_ns()}"
    result.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "whichrank.testbed.bench.step_job",
        json.dumps(asdict(plan) | {"result": str(result)}),
    ]
    if observed:
        command = [sys.executable, "-m", "whichrank", "run", "--output", str(output), "--", *command]
    planned_s = 2 * plan.pairs * (plan.steps + plan.settle) * STEP_S
    start_s = time.monotonic()
    with (folder / "job.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(START_LIMIT_S + SLOWEST * planned_s)
        except subprocess.TimeoutExpired as error:
            what = f"the timed training job was not done after {error.timeout:.0f} s: the machine is too busy"
            raise SensorError(what, mend="end what else runs, and try again") from error
        finally:
            _end(process, result.with_suffix(".pids"))
    took_s = time.monotonic() - start_s
    if code or not result.exists():
        reported = (folder / "job.log").read_text(errors="replace").strip()[-2000:] or "it says nothing"
        raise SensorError(f"the timed training job failed (exit code {code}): {reported}", mend="whichrank doctor")
    if observed:
        check_observed(output, RANKS, ["c10d", "socket"])
    return StepTimes(**json.loads(result.read_bytes())), took_s


def _environment() -> dict[str, str]:
    """Ours without what would make the job a part of another one."""
    drop = ("RANK", "LOCAL_RANK", "LD_PRELOAD")
    return {name: value for name, value in own_environment().items() if name not in drop}


def _end(process: subprocess.Popen[bytes], pids: Path) -> None:
    """Nothing of a run stays behind, and nothing stays stopped."""
    if pids.exists():
        for pid in json.loads(pids.read_bytes()):
            with contextlib.suppress(OSError):
                if b"whichrank" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGCONT)
        pids.unlink()
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _two_cores() -> Iterator[None]:
    """Whatever is started inside shares `RANKS` cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:RANKS])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
