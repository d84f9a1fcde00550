"""Three nodes on a leaf-spine network, a real job over them, one `whichrank run` on each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from whichrank.model.incident import Incident, decode_incident
from whichrank.testbed.bench.launch import preloaded
from whichrank.testbed.lab.network import DEVICE, Network
from whichrank.testbed.lab.topology import Topology
from whichrank.wire.keys import new_key

NODES = 3
_START_LIMIT_S = 120.0


class Nodes(Network):
    """The nodes and what runs on them; node 0 analyzes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"t{os.getpid()}", Topology(NODES), rate="")
        self.folder = folder
        self._key = new_key()
        self._runs: list[subprocess.Popen[bytes]] = []

    def run(self, module: str, nursery: Path) -> None:
        """One rank of the job on each node, under `whichrank run`; ranks are forked by a nursery."""
        for number in range(NODES):
            role = ("--serve", f"{self.address(0)}:29480") if number == 0 else ("--join", f"{self.address(0)}:29480")
            command = [
                *self.command(number),
                *(sys.executable, "-m", "whichrank", "run", "--hang-timeout", "60", *role),
                *("--output", str(self.output(number)), "--", *preloaded(nursery), "--nproc", "1"),
                *("--nodes", str(NODES), "--node", str(number), "--master", f"{self.address(0)}:29511"),
                *("--", "-m", module, "--steps", "100000"),
            ]
            job = {
                "GLOO_SOCKET_IFNAME": DEVICE, "OMP_NUM_THREADS": "1",
                "WHICHRANK_JOB": f"{self.folder.name}-{number}",
                "WHICHRANK_KEY": self._key,
            }  # fmt: skip
            with (self.folder / f"node-{number}.log").open("wb") as log:
                self._runs.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **job},
                        start_new_session=True,
                    )
                )  # fmt: skip

    def wait_under_way(self) -> None:
        """Until the job has printed steps for longer than agents keep what they know while all is well."""
        end_s = time.monotonic() + _START_LIMIT_S
        while b"step 80 " not in (self.folder / "node-0.log").read_bytes():
            assert time.monotonic() < end_s, self.logs()
            assert all(run.poll() is None for run in self._runs), self.logs()
            time.sleep(0.2)

    def incidents(self) -> list[Incident]:
        """Every word of the node that analyzes."""
        path = self.output(0) / "incidents.jsonl"
        if not path.exists():
            return []
        return [decode_incident(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def wait_for_alert(self, limit_s: float) -> Incident:
        """The first alert, and a little later the last word on it."""
        end_s = time.monotonic() + limit_s
        while not (alerts := [i for i in self.incidents() if i.severity == "alert"]):
            assert time.monotonic() < end_s, self.logs()
            time.sleep(0.2)
        time.sleep(2.0)
        return [i for i in self.incidents() if i.id == alerts[0].id][-1]

    def output(self, number: int) -> Path:
        """Where the run of a node writes."""
        return self.folder / f"out-{number}"

    def logs(self) -> str:
        """What the nodes said last, and the incidents."""
        said = [f"node {n}: {(self.folder / f'node-{n}.log').read_text()[-2000:]}" for n in range(NODES)]
        return "\n".join([*said, str([msgspec.to_builtins(i) for i in self.incidents()])])

    def down(self) -> None:
        """End the job and remove everything."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for run in self._runs:
                if run.poll() is None:
                    os.killpg(run.pid, number)
            end_s = time.monotonic() + 15
            while any(run.poll() is None for run in self._runs) and time.monotonic() < end_s:
                time.sleep(0.1)
        super().down()
