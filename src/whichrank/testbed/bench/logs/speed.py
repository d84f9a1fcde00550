"""How long a large log takes to read, and how much memory: seconds a GB, of the command that users run.

Each log is of one kind, and but for the last all of its lines are of interest: that is the slowest there is of a kind.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from whichrank.intake.grammar import worded
from whichrank.testbed.bench.dumps.peer import run_limited
from whichrank.testbed.bench.logs.dressing import PREFIXES
from whichrank.testbed.bench.logs.jobs import VERSIONS, Job, gave_up

GB: Final = 1_000_000_000
RANKS: Final = 64
LIMIT_S: Final = 3600.0
ONE_IN: Final = 2000
"""Of the lines of a training log, one of the watchdog."""


class Took(msgspec.Struct, frozen=True):
    """What reading one log took.

    Attributes:
        kind: Of its lines.
        bytes: Its length.
        seconds: From the start of the command to its end.
        peak_bytes: Memory, at most.
    """

    kind: str
    bytes: int
    seconds: float
    peak_bytes: int

    @property
    def seconds_a_gb(self) -> float:
        """Seconds for 10^9 bytes."""
        return self.seconds * GB / self.bytes


def measure(folder: Path, size: int, show_progress: Callable[[], None] = lambda: None) -> list[Took]:
    """Make a log of each kind, and read it.

    Args:
        folder: For one of them at a time.
        size: Bytes of each.
        show_progress: Called behind each.

    Raises:
        OSError: There is no room for it.
    """
    found = []
    for kind, lines in KINDS.items():
        path = folder / "job.log"
        with path.open("w") as file:
            left = size
            for line in lines(Random(0)):
                left -= file.write(line + "\n")
                if left <= 0:
                    break
        found.append(_read(kind, path))
        path.unlink()
        show_progress()
    return found


def _read(kind: str, path: Path) -> Took:
    """Read a log with the command."""
    run = run_limited([sys.executable, "-m", "whichrank", "analyze", str(path), "--json"], LIMIT_S)
    return Took(kind, path.stat().st_size, run.took_s, run.most_bytes)


def table_of(took: list[Took]) -> str:
    """Seconds a GB and memory, by kind."""
    lines = ["| lines | MB | s a GB | memory, MiB |", "|---|--:|--:|--:|"]
    for one in took:
        size, memory = one.bytes / 1e6, one.peak_bytes / (1 << 20)
        lines.append(f"| {one.kind} | {size:,.0f} | {one.seconds_a_gb:.0f} | {memory:.0f} |")
    return "\n".join(lines)


# ---- lines of each kind ----------------------------------------------------------------------------------------------


def _watchdog(random: Random, *, grows: bool = False) -> Iterator[str]:
    """Ranks that give up, again and again; a thousand lines on, the next operation."""
    for number in itertools.count():
        job = Job(RANKS, 5, VERSIONS[-1], 166 + number // 1000 * grows, 3, "ALLREDUCE", 1 << 20, random)
        yield from (text for _, text in gave_up(job, random.randrange(RANKS)))


def _torn(random: Random) -> Iterator[str]:
    lines = _watchdog(random)
    for line in lines:
        if random.random() < 0.2:
            at = random.randrange(20, len(line) - 20)
            yield line[:at] + next(lines)
            yield line[at:]
        else:
            yield line


def _records(random: Random) -> Iterator[str]:
    for number, line in enumerate(_watchdog(random)):
        yield PREFIXES["docker"](0, line, f"2026-06-01T03:00:{number % 60:02}.123Z")


def _prefixed(random: Random) -> Iterator[str]:
    for number, line in enumerate(_watchdog(random)):
        at = f"2026-06-01T03:00:{number % 60:02}.123Z"
        yield PREFIXES[("Kubernetes", "pdsh", "torchrun --tee", "syslog")[number % 4]](number % RANKS, line, at)


def _collectives(_: Random) -> Iterator[str]:
    process = {"tid": 7, "comm": "0x5581a0", "world": RANKS}
    for rank in range(RANKS):
        where = {"host": f"node{rank // 8}", "pid": 6000 + rank, "local": rank % 8}
        yield worded("NCCL: who is where", rank=rank, bus_id=f"{rank % 8}b000", comm_id="0x1", **process, **where)
    for count in itertools.count():
        for rank in range(RANKS):
            where = {"host": f"node{rank // 8}", "pid": 6000 + rank, "local": rank % 8}
            yield worded(
                "NCCL: a collective is enqueued", function="AllReduce", count=count, numel=1 << 20, **process, **where
            )


def _warnings(random: Random) -> Iterator[str]:
    for number in itertools.count():
        rank, port = number % RANKS, 40_000 + random.randrange(1000)
        text = f"socketProgress: Connection closed by remote peer node1<{port}>"
        yield worded("NCCL: a warning", host=f"node{rank // 8}", pid=6000 + rank, tid=7, local=rank % 8, text=text)


def _training(random: Random) -> Iterator[str]:
    errors = _watchdog(random)
    for number in itertools.count(1):
        if number % ONE_IN == 0:
            yield next(errors)
        loss, rate = random.random() * 3, random.randrange(10_000, 20_000)
        yield f"2026-06-01 03:00:{number % 60:02} | INFO | step {number} loss {loss:.4f} lr 1.0e-4 tokens/s {rate}"


KINDS: Final[dict[str, Callable[[Random], Iterator[str]]]] = {
    "PyTorch's watchdog": _watchdog,
    "the same, of ever later operations": lambda random: _watchdog(random, grows=True),
    "the same, a fifth of them torn": _torn,
    "the same, behind prefixes": _prefixed,
    "the same, in records of docker": _records,
    "collectives of NCCL": _collectives,
    "warnings of NCCL": _warnings,
    "training, one in 2,000 of the watchdog": _training,
}
"""By name."""
