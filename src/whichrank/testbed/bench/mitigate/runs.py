"""Runs the program of `bench mitigate` under `whichrank run`, on this machine or on nodes of a lab."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from whichrank.errors import SensorError
from whichrank.model.incident import Incident, decode_incident
from whichrank.testbed.lab.network import DEVICE, Network
from whichrank.wire.keys import new_key

PATIENCE_S: Final = 180.0
WINDOW_S: Final = 3.0
"""Of slowness, for the lab."""
_MODULE: Final = "whichrank.testbed.bench.mitigate.job"


@dataclass(frozen=True)
class Shape:
    """A job.

    Attributes:
        stages: Of a pipeline.
        replicas: Of it.
        each: Microbatches of a replica while all share evenly.
        microbatch_ms: In each stage.
        gradient_mib: Of each stage.
        replicas_first: Places go by replica first, so that neighbours are stages.
        steps: After which it ends by itself; 0: when it is told to.
    """

    stages: int = 1
    replicas: int = 4
    each: int = 6
    microbatch_ms: float = 20.0
    gradient_mib: float = 0.01
    replicas_first: bool = False
    steps: int = 0

    @property
    def ranks(self) -> int:
        """Processes."""
        return self.stages * self.replicas


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `mitigations.jsonl`, as far as it is needed."""

    at: datetime
    what: str
    level: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    predicted_s: float = 0.0


@dataclass
class Run:
    """A job that runs.

    Attributes:
        shape: Of it.
        folder: Where it writes.
        mode: Of `run --mitigate`; empty: whichrank is not there.
        network: Whose nodes have a rank each; None: all are here.
        checkpoints: Where it writes its state when asked, and what it goes on from; None: nowhere.
    """

    shape: Shape
    folder: Path
    mode: str = "auto"
    network: Network | None = None
    checkpoints: Path | None = None
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Run:
        nodes = self.network.count if self.network else 1
        environment = {**os.environ, **self._environment(), "WHICHRANK_KEY": new_key()}
        for node in range(nodes):
            with (self.folder / f"output.{node}").open("wb") as output:
                self._processes.append(
                    subprocess.Popen(
                        [*self._at(node), *self._whichrank(node), *self._torchrun(node, nodes), "-m", _MODULE],
                        env={**environment, "WHICHRANK_JOB": f"{self.folder.name}-{node}"},
                        stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                    )
                )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()  # which torchrun hears, and ends its ranks
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def finish(self) -> None:
        """Let the job end.

        Raises:
            SensorError: It failed.
        """
        (self.folder / "stop").touch()
        for process in self._processes:
            if process.wait(PATIENCE_S) not in (0, 3, 4):
                raise SensorError(f"the job has failed: {self.said()[-2000:]}", mend="see its output")

    def until(self, condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> bool:
        """Wait for something; whether it came.

        Raises:
            SensorError: The job has ended meanwhile.
        """
        give_up_s = time.monotonic() + patience_s
        while True:
            if any(process.poll() is not None for process in self._processes):
                raise SensorError(f"the job has ended before {what}: {self.said()[-2000:]}", mend="see its output")
            if condition():
                return True
            if time.monotonic() > give_up_s:
                return False
            time.sleep(0.05)

    def trains_well(self) -> None:
        """Wait until it has trained for two windows."""
        self.until(lambda: len(self.iterations(0)) > 5, "it trained")
        time.sleep(2.5 * WINDOW_S)

    def slow(self, factors: Mapping[int, float]) -> float:
        """From now on these ranks take so many times as long, and no others; the time."""
        part = self.folder / "slow.part"
        part.write_text(json.dumps({str(rank): factor for rank, factor in factors.items()}))
        part.replace(self.folder / "slow.json")
        return time.time()

    def lines(self) -> list[Line]:
        """What was done."""
        return [
            msgspec.json.decode(line, type=Line) for line in _whole_lines(self.folder / "run" / "mitigations.jsonl")
        ]

    def incidents(self) -> list[Incident]:
        """The last word on each."""
        found = map(decode_incident, _whole_lines(self.folder / "run" / "incidents.jsonl"))
        return list({incident.id: incident for incident in found}.values())

    def iterations(self, rank: int) -> list[dict[str, Any]]:
        """What a rank has written."""
        return [json.loads(line) for line in _whole_lines(self.folder / f"iterations.{rank}")]

    def median_s(self, since_s: float, until_s: float = np.inf) -> float:
        """Of iterations of rank 0 that began and ended in this time."""
        took_s = [one["s"] for one in self.iterations(0) if since_s <= one["at"] and one["at"] + one["s"] <= until_s]
        return float(np.median(took_s)) if took_s else float("nan")

    def said(self) -> str:
        """What all of it has printed."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("output.*")))

    def _at(self, node: int) -> list[str]:
        return self.network.command(node) if self.network else []

    def _whichrank(self, node: int) -> list[str]:
        if not self.mode:
            return []
        command = [sys.executable, "-m", "whichrank", "run"]
        if self.checkpoints:
            command += ["--checkpoints", str(self.checkpoints)]
        if node == 0:
            command += ["--mitigate", self.mode, "--slow-window", str(WINDOW_S), "--output", str(self.folder / "run")]
        else:
            command += ["--output", str(self.folder / f"run.{node}")]
        if self.network:
            command += ["--serve" if node == 0 else "--join", f"{self.network.address(0)}:29480"]
        return [*command, "--"]

    def _torchrun(self, node: int, nodes: int) -> list[str]:
        command = [sys.executable, "-m", "torch.distributed.run"]
        if not self.network:
            return [*command, "--standalone", "--nproc-per-node", str(self.shape.ranks)]
        place = ["--master-addr", self.network.address(0), "--master-port", "29511"]
        each = ["--nproc-per-node", str(self.shape.ranks // nodes)]
        return [*command, "--nnodes", str(nodes), "--node-rank", str(node), *each, *place]

    def _environment(self) -> dict[str, str]:
        shape = self.shape
        return {
            "FOLDER": str(self.folder), "STAGES": str(shape.stages), "REPLICAS": str(shape.replicas),
            "EACH": str(shape.each), "MICROBATCH_MS": str(shape.microbatch_ms), "STEPS": str(shape.steps),
            "GRADIENT_MIB": str(shape.gradient_mib), "ORDER": "dp" if shape.replicas_first else "pp",
            "GLOO_SOCKET_IFNAME": DEVICE if self.network else "lo", "OMP_NUM_THREADS": "1",
        }  # fmt: skip


def _whole_lines(path: Path) -> list[bytes]:
    content = path.read_bytes() if path.exists() else b""
    return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
