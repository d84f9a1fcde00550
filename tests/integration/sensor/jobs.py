"""Runs small real jobs under a sensor and reads their rings from outside, also while they hang.

Ranks are forked from a nursery that has imported torch, so a job starts at once; the tests of the way in (autoload by
`import torch`, torchrun, mp.spawn) start ordinary processes instead.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from whichrank.model.codes import Flag
from whichrank.model.kinds import Kind
from whichrank.ring.layout import RING

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_S = 120  # for whatever takes a second on an idle machine
VARIANTS = ("cpp", "python")


@dataclass
class Ring:
    """A copy of one ring file."""

    pid: int
    raw: Any = field(repr=False)

    @property
    def header(self) -> Any:
        return self.raw["header"]

    @property
    def rank(self) -> int:
        return int(self.header["rank"])

    @property
    def comms(self) -> dict[str, Any]:
        """Live communicators by description, else by name."""
        return {text(c["desc"]) if text(c["desc"]) != "undefined" else text(c["name"]): c for c in self.live()}

    def live(self) -> list[Any]:
        return [c for c in self.raw["comm"] if c["state"] == 1]

    def seen(self) -> list[Any]:
        """Live and closed communicators."""
        return [c for c in self.raw["comm"] if c["state"]]

    def members(self, comm: Any) -> list[int]:
        size, at = int(comm["size"]), int(comm["members_at"])
        if at >= 0:
            return [int(member) for member in self.raw["members"][at : at + size]]
        assert at == -1, "members are unknown"
        return [int(comm["first"]) + int(comm["stride"]) * i for i in range(size)]

    @property
    def in_flight(self) -> list[Any]:
        return [row for row in self.raw["inflight"] if row["state"]]

    @property
    def waits(self) -> list[Any]:
        return [row for row in self.raw["wait"] if row["tid"]]

    @property
    def pairs(self) -> list[Any]:
        return [row for row in self.raw["pair"] if row["key"] and row["issued"]]

    @property
    def records(self) -> list[Any]:
        """Completed operations in the order in which they were begun."""
        kept = min(int(self.header["head"]), len(self.raw["record"]))
        return sorted(self.raw["record"][:kept], key=lambda row: int(row["ordinal"]))

    def of_kind(self, kind: Kind) -> list[Any]:
        return [row for row in self.records if row["kind"] == kind]


def text(value: Any) -> str:
    return bytes(value).decode()


def flags(row: Any) -> Flag:
    return Flag(int(row["flags"]))


def rings_in(folder: Path) -> list[Ring]:
    """Rings by rank; a file that is still being made is left out."""
    found = []
    for path in folder.glob("*.ring"):
        content = path.read_bytes()
        if len(content) == RING.itemsize:
            raw = np.frombuffer(content, dtype=RING)[0]
            if raw["header"]["magic"]:
                found.append(Ring(int(path.stem), raw))
    return sorted(found, key=lambda ring: (ring.rank, ring.pid))


def environment(variant: str, folder: Path, **more: str) -> dict[str, str]:
    """Of a job observed by the C++ sensor (`cpp`), by the Python one (`python`), or not at all (`off`)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WHICHRANK_", "TORCHELASTIC_"))}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CXX"):
        kept.pop(name, None)
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
    if "WHICHRANK_CACHE" in os.environ:
        kept["WHICHRANK_CACHE"] = os.environ["WHICHRANK_CACHE"]
    kept |= {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    kept |= {"FOLDER": str(folder)}
    if variant != "off":
        kept |= {"WHICHRANK_DIR": str(folder / "rings"), "WHICHRANK_JOB": "test"}
    if variant == "python":
        kept["WHICHRANK_CACHE"] = "/proc/nowhere"  # so the C++ sensor can neither be found nor built
    return kept | more


def without_compiler(folder: Path) -> dict[str, str]:
    """Variables of a machine on which no compiler is and nothing was built."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("python", "python3", "torchrun"):
        found = shutil.which(name, path=str(Path(sys.executable).parent))
        if found and not (tools / name).exists():
            (tools / name).symlink_to(found)
    return {"PATH": f"{tools}:/sbin", "WHICHRANK_CACHE": str(folder / "cache")}


class Job:
    """A running job: its rings, its gates, its end."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], ranks: int) -> None:
        self.folder, self.process, self.ranks = folder, process, ranks
        self.output = ""

    def rings(self) -> list[Ring]:
        return rings_in(self.folder / "rings")

    def until(self, condition: Callable[[list[Ring]], Any], what: str) -> list[Ring]:
        """Rings in which `condition` holds."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            rings = self.rings()
            if len(rings) == self.ranks and condition(rings):
                return rings
            if self.process.poll() is not None:
                raise AssertionError(f"the job ended with {self.process.returncode} before {what}:\n{self.wait()}")
            if time.monotonic() > give_up:
                waits = [(ring.rank, ring.waits, ring.in_flight) for ring in rings]
                raise AssertionError(f"never seen: {what}; {waits}")
            time.sleep(0.02)

    def open_gate(self, name: str) -> None:
        (self.folder / name).touch()

    def wait(self) -> str:
        """What the job said, once it has ended."""
        try:
            self.output += self.process.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            kill_all(self.folder)
            self.output += self.process.communicate()[0]
            raise AssertionError(f"the job hangs:\n{self.output}") from None
        return self.output

    def finish(self) -> list[Ring]:
        """The rings after a good end."""
        output = self.wait()
        assert self.process.returncode == 0, output
        return self.rings()


@contextmanager
def started(
    command: list[str], folder: Path, variant: str, ranks: int, stderr: int = subprocess.STDOUT, **more: str
) -> Iterator[Job]:
    """Any command as a job. Its processes are killed at the end, whatever happened."""
    (folder / "rings").mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        command,
        env=environment(variant, folder, **more),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=folder,
    )
    try:
        yield Job(folder, process, ranks)
    finally:
        kill_all(folder)
        process.communicate()


def kill_all(folder: Path) -> None:
    """End every process of the job: torchrun gives its workers sessions of their own."""
    mark = f"FOLDER={folder}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def preloaded(program: str, ranks: int, *options: str) -> list[str]:
    """The command that runs `programs/<program>.py` on forked ranks."""
    launcher = [sys.executable, "-m", "whichrank.testbed.demo.launcher", "--nproc", str(ranks), *options]
    return [*launcher, "--", str(PROGRAMS / f"{program}.py")]


@contextmanager
def forked(program: str, ranks: int, folder: Path, variant: str, nursery: Path, **more: str) -> Iterator[Job]:
    """`programs/<program>.py` on ranks that a nursery forks."""
    with started(preloaded(program, ranks, "--nursery", str(nursery)), folder, variant, ranks, **more) as job:
        yield job


@contextmanager
def launched(program: str, ranks: int, folder: Path, variant: str, *options: str, **more: str) -> Iterator[Job]:
    """`programs/<program>.py` under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone", *options]
    command += [str(PROGRAMS / f"{program}.py")]
    with started(command, folder, variant, ranks, **more) as job:
        yield job


def finished(program: str, ranks: int, folder: Path, variant: str, nursery: Path, **more: str) -> list[Ring]:
    """The rings of a job on forked ranks that ran to its good end."""
    with forked(program, ranks, folder, variant, nursery, **more) as job:
        return job.finish()
