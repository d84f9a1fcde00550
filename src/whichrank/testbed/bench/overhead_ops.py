"""What one operation costs more under each c10d sensor, and what the ring's own calls cost.

Each sensor variant is measured in one process (two for Gloo) that switches it off and on in turn, block by block, so
that what else the machine does falls on both sides alike; the figure is the median of the paired differences. Two
backends: torch's `fake` one, where an operation is the host's dispatch and nothing else, and Gloo between two ranks,
which adds the work wrapper, the wait marks and the completion, and is dominated by the noise of the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichrank.errors import SensorError
from whichrank.native import CORE, INCLUDE, native_path
from whichrank.sensors import c10d

VARIANTS = ("cpp", "python")
BACKENDS = {"fake": (1, 400, 200), "gloo": (2, 120, 50)}  # processes, pairs of blocks, operations in a block
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Cost:
    """One measured cost.

    Attributes:
        what: What is measured, in words.
        n: How many runs or pairs of blocks.
        median_ns: Their median, in nanoseconds per operation.
        low_ns: The first quartile.
        high_ns: The third quartile.
        base_ns: Median of the same operation without it; 0 where there is no such thing.
    """

    what: str
    n: int
    median_ns: float
    low_ns: float
    high_ns: float
    base_ns: float = 0.0


def cost_of(what: str, samples_ns: Sequence[float], base_ns: float = 0.0) -> Cost:
    """Median and quartiles of `samples_ns`."""
    low, median, high = statistics.quantiles(samples_ns, n=4, method="inclusive")
    return Cost(what, len(samples_ns), median, low, high, base_ns)


def sensor_costs(variants: Sequence[str] = VARIANTS, backends: Sequence[str] = tuple(BACKENDS)) -> list[Cost]:
    """The added cost of one small all-reduce, by sensor variant and backend.

    Raises:
        SensorError: A measuring process failed, or the variant could not be used on this machine.
    """
    return [_sensor_cost(variant, backend) for backend in backends for variant in variants]


def ring_costs() -> list[Cost]:
    """The cost of a ring push, of a trace ID and of an operation's begin and end, in a small C program.

    Raises:
        SensorError: There is no C compiler, or the program fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SensorError("no C compiler was found", mend="apt-get install gcc")
    core = native_path(CORE)
    with _folder() as folder:
        program = folder / "ring_cost"
        source = Path(__file__).with_name("ring_cost.c")
        _run([compiler, "-O2", f"-I{native_path(INCLUDE)}", str(source), "-o", str(program), str(core),
              f"-Wl,-rpath,{core.parent}"])  # fmt: skip
        reported: dict[str, list[float]] = json.loads(_run([str(program), str(folder / "cost.ring")]))
    return [cost_of(name, samples) for name, samples in reported.items()]


def _sensor_cost(variant: str, backend: str) -> Cost:
    ranks, pairs, operations = BACKENDS[backend]
    with _folder() as folder:
        environment = os.environ | {
            "WHICHRANK_DIR": str(folder),
            "WORLD_SIZE": str(ranks),
            "INIT_FILE": str(folder / "rendezvous"),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        environment.pop("WHICHRANK_DISABLE", None)
        if variant == "python":
            environment["WHICHRANK_CACHE"] = "/proc/nowhere"  # the C++ sensor can neither be found nor built
        command = [
            sys.executable,
            "-m",
            "whichrank.testbed.bench.overhead_ops",
            variant,
            backend,
            str(pairs),
            str(operations),
        ]
        processes = [
            subprocess.Popen(
                command,
                env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            reported = [process.communicate(timeout=TIMEOUT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
        for process, (_, errors) in zip(processes, reported, strict=True):
            if process.returncode:
                last = (errors.strip().splitlines() or ["it says nothing"])[-1]
                raise SensorError(
                    f"measuring the {variant} sensor on {backend} failed: {last}", mend="whichrank doctor"
                )
        off, on = json.loads(reported[0][0].splitlines()[-1])
    name = {"cpp": "C++", "python": "Python"}[variant]
    differences = [after - before for before, after in zip(off, on, strict=True)]
    return cost_of(f"{name} sensor, one op on {backend}", differences, statistics.median(off))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:  # noqa: S108
        yield Path(name)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        raise SensorError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-300:]}", mend="whichrank doctor")
    return done.stdout


def _switch_of(variant: str) -> Callable[[bool], None]:
    if variant == "cpp":
        return c10d.observe
    from whichrank.sensors import fallback

    return fallback.observe


def _measure(variant: str, backend: str, pairs: int, operations: int) -> tuple[list[float], list[float]]:
    """In the measuring process: ns per operation of each block, without and with the sensor."""
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        make_store: Any = FakeStore
        dist.init_process_group("fake", store=make_store(), rank=0, world_size=2)
    else:
        dist.init_process_group(backend, init_method=f"file://{os.environ['INIT_FILE']}", rank=rank, world_size=ranks)
    group: Any = dist.group.WORLD
    tensors = [torch.ones(4)]
    switch = _switch_of(variant)

    def block(on: bool) -> float:
        switch(on)
        start = time.perf_counter_ns()
        for _ in range(operations):
            group.allreduce(tensors).wait()
        return (time.perf_counter_ns() - start) / operations

    for warm in (False, True) * 5:
        block(warm)
    off, on = [], []
    for pair in range(pairs):
        first = bool(pair % 2)
        one, other = block(first), block(not first)
        off.append(other if first else one)
        on.append(one if first else other)
    dist.destroy_process_group()
    return off, on


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
