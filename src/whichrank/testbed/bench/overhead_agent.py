"""What an agent costs on its node: CPU and memory, under eight ranks that issue 30 or 1,000 operations a second each.

The ranks are processes without torch that call the native library as the sensors do: three communicators, four
operations in flight all the time, a wait around every tenth, and messages in the probing frame, so that the frame
sampler has its work. The agent is the real one, in a process of its own, with its analyzer at the other end of a
socket; its CPU time is the kernel's, in nanoseconds, over all its threads. The figure is that of a job that has no
fault: nothing is suspected, and the analyzer asks for the pace that it asks for then.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from whichrank.agent.processes import read
from whichrank.analyzer.analyzer import QUIET_EVERY_S
from whichrank.errors import SensorError
from whichrank.model.codes import SensorState
from whichrank.model.commands import Command, Pace, Reply
from whichrank.model.sensors import SOCKET
from whichrank.model.telemetry import Batch
from whichrank.ring.folder import JobFolder
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd

RANKS: Final = 8
OPS_PER_S: Final = (30, 1000)
WINDOWS: Final = 10
WINDOW_S: Final = 10.0
"""Two snapshots of an agent that sleeps meanwhile."""
SETTLE_S: Final = 12.0
"""Until it sleeps."""
START_TIMEOUT_S: Final = 30.0
IN_FLIGHT: Final = 4
_CREDIT: Final = 4
_QUIET: Final = Command(1, Pace(every_s=QUIET_EVERY_S))
_START_AFTER_S: Final = 2.0
_BURSTS_PER_S: Final = 100
_ITERATIONS_PER_S: Final = 3
_WAIT_EVERY: Final = 10


@dataclass(frozen=True, slots=True)
class AgentCost:
    """What one agent takes.

    Attributes:
        ranks: Ranks on its node.
        ops_per_s: Operations of each rank per second, as counted in its ring.
        windows: In how many windows of `window_s` it was measured.
        window_s: Their length.
        polls: Snapshots in all of them.
        cpu_percent: Median over windows of its CPU time, in percent of one core.
        low_percent: The first quartile.
        high_percent: The third quartile.
        rss_mib: Its resident memory at the end.
        lost_records: Records that the ranks wrote and it could not say.
    """

    ranks: int
    ops_per_s: float
    windows: int
    window_s: float
    polls: int
    cpu_percent: float
    low_percent: float
    high_percent: float
    rss_mib: float
    lost_records: int


def agent_cost(
    ranks: int = RANKS,
    ops_per_s: int = OPS_PER_S[-1],
    *,
    windows: int = WINDOWS,
    window_s: float = WINDOW_S,
    settle_s: float = SETTLE_S,
    frames: bool = True,
) -> AgentCost:
    """Measure an agent of `ranks` ranks.

    Args:
        ranks: Rank processes.
        ops_per_s: Operations of each per second.
        windows: How often to measure.
        window_s: How long each time.
        settle_s: How long to wait before.
        frames: Their socket sensors count, so their frames are sampled.

    Raises:
        SensorError: The agent or a rank did not start.
    """
    with tempfile.TemporaryDirectory(prefix="whichrank-cost-", dir=_shared_memory()) as name, ExitStack() as stack:
        folder = JobFolder.create("cost", owner_pid=os.getpid(), base=Path(name))
        end = ZmqAnalyzerEnd([f"ipc://{name}/analyzer"])
        stack.callback(end.close)
        rank_processes(stack, str(folder.path), ranks, ops_per_s, frames=frames)
        agent = [sys.executable, "-P", "-m", "whichrank", "agent", "--job", folder.job, "--connect", end.addresses[0]]
        environ = {"WHICHRANK_SHM": name, "WHICHRANK_INSECURE": "1", "OPENBLAS_NUM_THREADS": "1"}  # as of a run
        pid = stack.enter_context(_process([*agent, "--wait", "--run-pid", str(os.getpid())], environ)).pid
        _wait_for_ranks(end, ranks)
        earlier, shares, batches = _take(end, settle_s), [], list[Batch]()
        for _ in range(windows):
            before_ns, start_ns = cpu_ns(pid), time.perf_counter_ns()
            batches += _take(end, window_s)
            shares.append(100 * (cpu_ns(pid) - before_ns) / (time.perf_counter_ns() - start_ns))
        low, median, high = statistics.quantiles(shares, n=4, method="inclusive")
        first, last = ([batch for batch in some if batch.ranks][-1].rank_rows() for some in (earlier, batches))
        rate = float(np.mean((last["head"] - first["head"]) / (last["read_ns"] - first["read_ns"]) * 1e9))
        polls, lost = sum(bool(batch.ranks) for batch in batches), int(last["lost_records"].sum())
        return AgentCost(ranks, rate, windows, window_s, polls, median, low, high, _rss_mib(pid), lost)


def _wait_for_ranks(end: ZmqAnalyzerEnd, ranks: int) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not any(batch.rank_rows().size == ranks for batch in _take(end, 0.2)):
        if time.monotonic() > deadline_s:
            raise SensorError("the agent did not see its ranks", where=end.addresses[0], mend="whichrank doctor")


def _take(end: ZmqAnalyzerEnd, seconds: float) -> list[Batch]:
    """Answer as a server does what comes within this time: batches, not words that all is well."""
    taken: list[Batch] = []
    deadline_s = time.monotonic() + seconds
    while (left_s := deadline_s - time.monotonic()) > 0:
        for batch, _ in end.receive(left_s):
            if not batch.is_well:
                end.reply(batch.agent, Reply(_CREDIT, batch.sequence, commands=(_QUIET,)))
            taken.append(batch)
    return taken


def rank_processes(
    stack: ExitStack, directory: str, ranks: int, ops_per_s: int, *, frames: bool
) -> list[subprocess.Popen[bytes]]:
    """Start processes that issue operations, all from one moment on, until the stack is closed.

    Args:
        stack: Ends them.
        directory: Of the job.
        ranks: How many.
        ops_per_s: Operations of each per second.
        frames: Their socket sensors count.
    """
    each = (str(ranks), str(ops_per_s), str(int(frames)), str(time.monotonic() + _START_AFTER_S))
    command = [sys.executable, "-m", __name__, directory]
    return [stack.enter_context(_process([*command, str(rank), *each], {})) for rank in range(ranks)]


@contextmanager
def _process(command: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=os.environ | environ, stdin=quiet, stdout=quiet, stderr=quiet) as process:
        try:
            yield process
        finally:
            process.kill()


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process; the clock of Linux that clock_getcpuclockid(3) names."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def _rss_mib(pid: int) -> float:
    lines = read(f"/proc/{pid}/status").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(b"VmRSS:")), 0.0)


def _shared_memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  # where rings are in a job


def _load(directory: str, rank: int, world: int, ops_per_s: int, frames: bool, start_s: float) -> None:
    """In a rank process: write operations at an even rate, a hundred bursts a second at most, until the parent ends.

    They come in iterations: each one has the counts of the one before.
    """
    from whichrank.model.kinds import Kind
    from whichrank.native import CORE, native_path
    from whichrank.sensors.abi import DONE, WAIT_CALL, Core, Op
    from whichrank.sensors.identity import Identity

    core = Core()
    ring = core.open_ring(directory.encode(), Identity(rank, rank, world, world, 0, b"host", b"cost"))
    members = (ctypes.c_int32 * world)(*range(world))
    slots = [core.comm_open(ring, name, name, b"gloo", world, rank, members, 600_000) for name in (b"tp", b"pp", b"dp")]
    library = ctypes.PyDLL(str(native_path(CORE)))
    library.wr_frame_count.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    library.wr_heartbeat_start.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.wr_heartbeat_start(ring, None)
    if frames:
        core.sensor_set(ring, SOCKET.place, SensorState.ON, b"")
    bursts_per_s, of_iteration = min(_BURSTS_PER_S, ops_per_s), max(1, ops_per_s // _ITERATIONS_PER_S)
    flying: deque[Op] = deque()
    next_s, number, parent = start_s, 0, os.getppid()
    while os.getppid() == parent:
        time.sleep(max(0.0, next_s - time.monotonic()))
        next_s += 1 / bursts_per_s
        for _ in range(max(1, ops_per_s // bursts_per_s)):
            number += 1
            count = 1024 + number % of_iteration
            op = Op(comm_slot=slots[number % len(slots)], kind=int(Kind.ALL_REDUCE), dtype=7, peer=-1, count=count)
            core.op_begin(ring, op)
            core.op_issued(ring, op)
            if frames:
                library.wr_frame_count(ring, 0, 0)
                library.wr_frame_count(ring, 1, 1)
            flying.append(op)
            if len(flying) > IN_FLIGHT:
                done = flying.popleft()
                row = core.wait_begin(ring, done, WAIT_CALL) if number % _WAIT_EVERY == 0 else -1
                core.op_end(ring, done, DONE)
                if row >= 0:
                    core.wait_end(ring, done, row)


if __name__ == "__main__":
    _load(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "1", float(sys.argv[6]))
