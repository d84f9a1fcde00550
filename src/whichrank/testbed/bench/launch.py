"""The command line by which a job is started and watched, as a user's would be: on this machine, or on each node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from whichrank.testbed.demo.ports import free_port
from whichrank.testbed.lab.network import DEVICE, Network
from whichrank.wire.keys import VARIABLE, new_key

Launcher = Literal["preloaded", "torchrun"]
_FIRST_PORT: Final = 29500
"""In namespaces; the others of this process follow it."""
_JOBS: Final = 1000
_ENDS_WITH_ME: Final = ("setpriv", "--pdeathsig", "TERM", "--")
"""Of util-linux, as `nsenter`: who is killed ends nothing, and others may be at work in a lab."""
_OUR_OWN: Final = {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
"""What stands in the folder of who asked is no part of a job of ours."""
_KEPT: Final = ("WHICHRANK_CACHE", "WHICHRANK_SHM")


@dataclass(frozen=True)
class Launch:
    """A job under `whichrank run`.

    Attributes:
        job: The training script, as arguments of its launcher.
        ranks: World size.
        folder: Where the first node's output goes; below it that of the others.
        launcher: preloaded: torch is imported once and the ranks are forked.
        options: Of `whichrank run`.
        network: The nodes; None: this machine.
        is_elastic: torchrun goes on with one node fewer, and takes it in whenever it comes.
        nursery: Socket of one that has torch loaded, for preloaded launchers.
    """

    job: Sequence[str]
    ranks: int
    folder: Path
    launcher: Launcher = "preloaded"
    options: Sequence[str] = ()
    network: Network | None = None
    is_elastic: bool = False
    nursery: Path | None = None

    @property
    def nodes(self) -> int:
        """How many there are."""
        return self.network.count if self.network else 1

    @cached_property
    def _master(self) -> tuple[str, int]:
        return (self.network.address(0), self._port) if self.network else ("127.0.0.1", free_port())

    @cached_property
    def _key(self) -> str:
        return new_key()

    @property
    def _port(self) -> int:
        """Several jobs run in one lab, each started by a process of its own."""
        return _FIRST_PORT + 2 * (os.getpid() % _JOBS)

    def command(self, number: int) -> list[str]:
        """What this node runs."""
        python, local = sys.executable, str(self.ranks // self.nodes)
        host, port = self._master
        if self.is_elastic and self.network:
            launch = [python, "-m", "torch.distributed.run", "--nproc-per-node", local, "--max-restarts", "3"]
            launch += ["--nnodes", f"{self.nodes - 1}:{self.nodes}", "--local-addr", self.network.address(number)]
            launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:{port}", "--rdzv-id", "lab"]
            launch += ["--rdzv-conf", f"is_host={int(number == 0)},last_call_timeout=1"]
        elif self.launcher == "torchrun":
            launch = [python, "-m", "torch.distributed.run", "--nproc-per-node", local]
            launch += ["--nnodes", str(self.nodes), "--node-rank", str(number)]
            launch += ["--master-addr", host, "--master-port", str(port)]
        else:
            launch = [*preloaded(self.nursery), "--nproc", local, "--nodes", str(self.nodes)]
            launch += ["--node", str(number), "--master", f"{host}:{port}", "--"]
        place = ["--join" if number else "--serve", f"{host}:{self._port + 1}"] if self.network else []
        output = self.folder / f"node-{number}" if number else self.folder
        there = [*_ENDS_WITH_ME, *self.network.command(number)] if self.network else []
        watch = [python, "-m", "whichrank", "run", *place, *self.options, "--output", str(output), "--"]
        return [*there, *watch, *launch, *self.job]

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """What it needs, and this besides."""
        # torch 2.13 keeps the first round's store for itself, so that a node that comes later waits for its address.
        elastic = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if self.is_elastic else {}
        # Each torchrun leaves a folder of logs there, unless it ends by itself.
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        key = {VARIABLE: self._key} if self.network else {}
        return job_environment({**more, **elastic, **key, "TMPDIR": str(scratch)}, on_nodes=self.network is not None)


def preloaded(nursery: Path | None) -> list[str]:
    """How the preloaded launcher is called; its options follow."""
    return [sys.executable, "-m", "whichrank.testbed.demo.launcher", *(["--nursery", str(nursery)] if nursery else [])]


def own_environment() -> dict[str, str]:
    """Ours without what would make a job a part of another one that is watched."""
    return {n: v for n, v in os.environ.items() if not n.startswith("WHICHRANK_") or n in _KEPT}


def job_environment(more: Mapping[str, str], *, on_nodes: bool) -> dict[str, str]:
    """What a job needs.

    Args:
        more: Besides.
        on_nodes: It runs on nodes of a lab.
    """
    over = {"GLOO_SOCKET_IFNAME": DEVICE} if on_nodes else {}
    return {**own_environment(), **more, **_OUR_OWN, **over}


def end(commands: Sequence[subprocess.Popen[bytes]], within_s: float) -> None:
    """End commands that have sessions of their own, the last one first; kill what has not obeyed by then."""
    for command in reversed(commands):
        command.terminate()
    for command in commands:
        try:
            command.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()
