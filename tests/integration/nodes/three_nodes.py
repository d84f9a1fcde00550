"""Three nodes: network namespaces on one switch, a real job over them, one `whichrank run` on each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from whichrank.model.incident import Incident, decode_incident

NODES = 3
SWITCH = "sw"
_START_LIMIT_S = 120.0


class Nodes:
    """The nodes and what runs on them; node 0 analyzes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._id = f"wr{os.getpid() % 10000}"
        self._runs: list[subprocess.Popen[bytes]] = []

    def up(self) -> None:
        """Make namespaces, a bridge in one of them, and a cable from it to each of the others."""
        for name in (SWITCH, *map(str, range(NODES))):
            _ip("netns", "add", self.name(name))
        _ip("-n", self.name(SWITCH), "link", "add", "br0", "type", "bridge")
        _ip("-n", self.name(SWITCH), "link", "set", "br0", "up")
        for number in range(NODES):
            node, cable = self.name(str(number)), f"{self._id}p{number}"
            _ip("link", "add", cable, "netns", self.name(SWITCH), "type", "veth", "peer", "eth0", "netns", node)
            _ip("-n", self.name(SWITCH), "link", "set", cable, "master", "br0", "up")
            _ip("-n", node, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", node, "link", "set", device, "up")

    def unplug(self, number: int) -> None:
        """Take the cable of a node out of the switch."""
        _ip("-n", self.name(SWITCH), "link", "set", f"{self._id}p{number}", "down")

    def drop(self, source: int, target: int) -> None:
        """Lose all packets from one node to another, unseen by both: they go to an address that no device has."""
        wrong = ("lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
        _ip("-n", self.name(str(source)), "neigh", "replace", f"10.77.0.{target + 1}", *wrong)

    def run(self, module: str) -> None:
        """One rank of the job on each node, under `whichrank run`."""
        for number in range(NODES):
            role = ("--serve", "10.77.0.1:29480") if number == 0 else ("--join", "10.77.0.1:29480")
            command = [
                *("ip", "netns", "exec", self.name(str(number))),
                *(sys.executable, "-m", "whichrank", "run", "--hang-timeout", "60", *role),
                *("--output", str(self.output(number)), "--", sys.executable, "-m", module, "--steps", "100000"),
            ]
            job = {
                "RANK": str(number), "WORLD_SIZE": str(NODES), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "1", "WHICHRANK_JOB": f"{self._id}-{number}",
            }  # fmt: skip
            with (self.folder / f"node-{number}.log").open("wb") as log:
                self._runs.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **job},
                        start_new_session=True,
                    )
                )  # fmt: skip

    def wait_under_way(self) -> None:
        """Until the job prints its steps."""
        end_s = time.monotonic() + _START_LIMIT_S
        while b"step 20 " not in (self.folder / "node-0.log").read_bytes():
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

    def name(self, what: str) -> str:
        """Of a namespace."""
        return f"{self._id}-{what}"

    def down(self) -> None:
        """End the job and remove everything."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for run in self._runs:
                if run.poll() is None:
                    os.killpg(run.pid, number)
            end_s = time.monotonic() + 15
            while any(run.poll() is None for run in self._runs) and time.monotonic() < end_s:
                time.sleep(0.1)
        for name in (SWITCH, *map(str, range(NODES))):
            left = subprocess.run(
                ["ip", "netns", "pids", self.name(name)], capture_output=True, text=True, check=False
            ).stdout.split()
            for pid in left:
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", self.name(name)], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
