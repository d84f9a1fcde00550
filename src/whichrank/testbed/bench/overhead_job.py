"""What agent and analyzer take together for a healthy job of one node, under `whichrank run` as a user starts it.

The ranks are those of `overhead_agent`. CPU time is the kernel's, of the run, in which the analyzer is, and its agent.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whichrank.errors import SensorError
from whichrank.testbed.bench.overhead_agent import (
    RANKS,
    SETTLE_S,
    START_TIMEOUT_S,
    WINDOW_S,
    WINDOWS,
    cpu_ns,
    rank_processes,
)

_END_WITHIN_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class JobCost:
    """What they take.

    Attributes:
        ranks: Of the job.
        ops_per_s: Operations that each is to issue per second.
        window_s: Length of a window.
        percent: In each window, CPU time of both, in percent of one core.
    """

    ranks: int
    ops_per_s: int
    window_s: float
    percent: list[float]


def job_cost(
    ops_per_s: int,
    ranks: int = RANKS,
    *,
    windows: int = WINDOWS,
    window_s: float = WINDOW_S,
    settle_s: float = SETTLE_S,
) -> JobCost:
    """Measure a job.

    Args:
        ops_per_s: Operations of each rank per second.
        ranks: Rank processes.
        windows: How often to measure.
        window_s: How long each time.
        settle_s: How long to wait before.

    Raises:
        SensorError: No agent started, or the job ended by itself.
    """
    with tempfile.TemporaryDirectory(prefix="whichrank-cost-") as name, _running(Path(name), ranks, ops_per_s) as run:
        pids = [run.pid, _agent_of(run)]
        time.sleep(settle_s)
        percent = []
        for _ in range(windows):
            before_ns, start_ns = sum(map(cpu_ns, pids)), time.perf_counter_ns()
            time.sleep(window_s)
            percent.append(100 * (sum(map(cpu_ns, pids)) - before_ns) / (time.perf_counter_ns() - start_ns))
        if run.poll() is not None:
            raise SensorError("the measured job ended by itself", mend="whichrank doctor")
    return JobCost(ranks, ops_per_s, window_s, percent)


@contextlib.contextmanager
def _running(output: Path, ranks: int, ops_per_s: int) -> Iterator[subprocess.Popen[bytes]]:
    job = [sys.executable, "-m", __name__, str(ranks), str(ops_per_s)]
    command = [sys.executable, "-P", "-m", "whichrank", "run", "--output", str(output), "--", *job]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet) as run:
        try:
            yield run
        finally:
            run.terminate()
            try:
                run.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                run.kill()


def _agent_of(run: subprocess.Popen[bytes]) -> int:
    """The process of its agent.

    Raises:
        SensorError: There is none.
    """
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and run.poll() is None:
        for children in Path(f"/proc/{run.pid}/task").glob("*/children"):
            for pid in children.read_text(encoding="ascii").split():
                with contextlib.suppress(OSError):
                    if b"agent" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                        return int(pid)
        time.sleep(0.1)
    raise SensorError("the run did not start an agent", mend="whichrank doctor")


def _launch(ranks: int, ops_per_s: int) -> None:
    """As a launcher does: start the ranks, and end with them."""
    with contextlib.ExitStack() as stack:
        for process in rank_processes(stack, os.environ["WHICHRANK_DIR"], ranks, ops_per_s, frames=True):
            process.wait()


if __name__ == "__main__":
    _launch(int(sys.argv[1]), int(sys.argv[2]))
