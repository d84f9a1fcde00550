"""Ranks of a job that have no ring: a server that never imports torch, a rank that is stopped before it does.

A process belongs to the job if it has its folder in the environment (`WHICHRANK_DIR`), and it is a rank if a launcher
has told it so (`RANK`, `LOCAL_RANK`, `WORLD_SIZE`). All processes of this user are looked through for that, which
costs milliseconds, so it is done only while ranks of this node are missing. Every job starts that way: a process is
taken for a rank without a ring only once it is stopped, or has had none for long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from whichrank.agent.processes import read_process
from whichrank.model.rows import COMM, CONNECTION, HEADER, INFLIGHT_ROW, PAIR, PLACES, RECORD, SHARES, SPLITS_ROW, WAIT
from whichrank.model.telemetry import ProcessState
from whichrank.ring.layout import MAGIC, VERSION
from whichrank.ring.tables import RingSnapshot, Rows

EVERY_NS: Final = 1_000_000_000
SELDOM_NS: Final = 30_000_000_000
"""How often processes are looked through: in the first minute, and later."""
FIRST_NS: Final = 60_000_000_000
LONG_NS: Final = 30_000_000_000
"""A process that runs for so long and has no ring will have none. Importing torch takes seconds, on a node that is too
busy more."""
SUFFIX: Final = ".none"
_HELPER: Final = "WHICHRANK_RANK_PID"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_MOST_BYTES: Final = 1 << 18


class Found(NamedTuple):
    """A process that is a rank by the word of its launcher."""

    rank: int
    pid: int
    start_ticks: int
    environ: dict[str, str]

    def number(self, name: str) -> int:
        """A number of its environment, -1 if there is none."""
        text = self.environ.get(name, "")
        return int(text) if text.isdigit() else -1


class NoRing:
    """Stands for the ring of a process that has none: it says who the process is, and that it has done nothing.

    Has the methods of `RingReader` that are used of the ring of a rank.
    """

    lost = 0
    cursor = 0

    def __init__(self, found: Found) -> None:
        self.path = Path(f"{found.pid}{SUFFIX}")
        header = np.zeros(1, HEADER)
        header["magic"], header["version"], header["pid"] = MAGIC, VERSION, found.pid
        header["pid_start_ticks"], header["rank"] = found.start_ticks, found.rank
        header["local_rank"], header["world_size"] = found.number("LOCAL_RANK"), found.number("WORLD_SIZE")
        header["restart_count"] = max(found.number("TORCHELASTIC_RESTART_COUNT"), 0)
        header["local_world_size"] = found.number("LOCAL_WORLD_SIZE")
        header["created_monotonic_ns"] = found.start_ticks * 1_000_000_000 // _TICKS_PER_S
        self._header = header

    def snapshot(self) -> RingSnapshot:
        """An empty ring."""
        nowhere = np.empty(0, np.intp)
        comms, inflight = np.empty(0, COMM), np.empty(0, INFLIGHT_ROW)
        waits, pairs = np.empty(0, WAIT), np.empty(0, PAIR)
        return RingSnapshot(time.monotonic_ns(), self._header.copy(), comms, nowhere, inflight, nowhere, waits, pairs)

    def shares(self) -> np.void:
        """It offers nothing."""
        row: np.void = np.zeros(1, SHARES)[0]
        return row

    def places(self) -> np.void:
        """It offers nothing."""
        row: np.void = np.zeros(1, PLACES)[0]
        return row

    def backlog(self) -> int:
        """None."""
        return 0

    def records(self, limit: int = 0) -> Rows:
        """None."""
        return np.empty(0, RECORD)

    def connections(self) -> Rows:
        """None."""
        return np.empty(0, CONNECTION)

    def members(self, comm: np.void) -> list[int]:
        """None."""
        return []

    def splits(self) -> Rows:
        """None."""
        return np.empty(0, SPLITS_ROW)

    def step_tid(self) -> int:
        """None."""
        return 0

    def is_replaced(self) -> bool:
        """Never: there is no file."""
        return False

    def fileno(self) -> int:
        """There is no file."""
        return -1

    def close(self) -> None:
        """Nothing is open."""


class Ringless:
    """Finds them.

    Args:
        folder: The job's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._started_ns = time.monotonic_ns()
        self._next_ns = 0

    def find(self, here: Collection[int], expected: int) -> list[Found]:
        """Ranks without a ring, one process each; nothing where none can be missing, or when it is too soon.

        Args:
            here: Ranks of this node that have a ring.
            expected: How many ranks the launcher has started on this node, 0 unknown.
        """
        now_ns = time.monotonic_ns()
        if now_ns < self._next_ns or (here and expected <= len(here)):
            return []  # a launcher that says nothing of its ranks has not given them theirs either
        self._next_ns = now_ns + (EVERY_NS if now_ns - self._started_ns < FIRST_NS else SELDOM_NS)
        best: dict[int, Found] = {}
        for found in self._ranks():
            if found.rank not in here and (found.rank not in best or _is_better(found, best[found.rank])):
                best[found.rank] = found
        return [found for found in best.values() if _has_none_for_good(found)]

    def _ranks(self) -> Iterator[Found]:
        for name in os.listdir("/proc"):  # noqa: PTH208  # thousands of names
            if not name.isdigit():
                continue
            environ = _environ(int(name))
            if environ.get("WHICHRANK_DIR") != self._folder or environ.get("WHICHRANK_DISABLE") == "1":
                continue
            is_rank = all(environ.get(key, "").isdigit() for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
            process = read_process(int(name))
            lives = process.state not in (ProcessState.GONE, ProcessState.ZOMBIE)
            if is_rank and lives and _HELPER not in environ:
                yield Found(int(environ["RANK"]), int(name), process.start_ticks, environ)


def _is_better(one: Found, other: Found) -> bool:
    """Of two processes of one rank: a Python, not the shell that starts it; of two of these the older one."""
    ours = [(_is_python(found.pid), -found.start_ticks, -found.pid) for found in (one, other)]
    return ours[0] > ours[1]


def _has_none_for_good(found: Found) -> bool:
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - found.start_ticks * 1_000_000_000 // _TICKS_PER_S
    return age_ns >= LONG_NS or read_process(found.pid).state == ProcessState.STOPPED


def _is_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith(("python", "pypy"))
    except OSError:
        return False


def _environ(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty if it is not ours to read."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb", buffering=0) as file:
            content = file.read(_MOST_BYTES) or b""
    except OSError:
        return {}
    if b"WHICHRANK_DIR=" not in content:
        return {}
    pairs = (entry.partition("=") for entry in content.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}
