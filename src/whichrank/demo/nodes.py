"""Nodes on one machine: network namespaces on a switch, where the egress of each can be limited. Needs root.

What the ranks of a node send to other nodes passes its one cable, as it would pass a network card.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

DEVICE = "eth0"
_SWITCH = "sw"
_IN_NAMESPACE = ("ip", "netns", "exec")
_BURST = "32k"
_BACKLOG = "300ms"
_GONE_WITHIN_S = 5.0


def can_be_here() -> bool:
    """Whether this machine has the tools, and this user the rights."""
    return os.geteuid() == 0 and all(map(shutil.which, ("ip", "tc")))


class NoNodesError(OSError):
    """This machine gives no network namespaces, or not to this user."""


class Nodes:
    """Some nodes; `up` makes them and `down` removes all of it, also what still runs there.

    Args:
        count: at most 200.
        name: what their names begin with; another one for each set that is up at once.
    """

    def __init__(self, count: int, name: str = "") -> None:
        self.count = count
        self._name = name or f"wr{os.getpid() % 100_000}"
        self._made: list[str] = []

    def up(self) -> None:
        """Make namespaces, a bridge in one of them, and a cable from it to each of the others.

        Raises:
            NoNodesError: It cannot be done here; nothing is left behind.
        """
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as error:
            self.down()
            said = getattr(error, "stderr", b"") or str(error).encode()
            raise NoNodesError(
                f"network namespaces cannot be made here: {said.decode(errors='replace').strip()}"
            ) from error

    def _make(self) -> None:
        for name in (_SWITCH, *map(str, range(self.count))):
            _ip("netns", "add", self._of(name))
            self._made.append(self._of(name))
        switch = self._of(_SWITCH)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number in range(self.count):
            node, cable = self._of(str(number)), self._cable(number)
            _ip("link", "add", cable, "netns", switch, "type", "veth", "peer", DEVICE, "netns", node)
            _ip("-n", switch, "link", "set", cable, "master", "br0", "up")
            _ip("-n", node, "addr", "add", f"{self.address(number)}/24", "dev", DEVICE)
            for device in (DEVICE, "lo"):
                _ip("-n", node, "link", "set", device, "up")

    def address(self, number: int) -> str:
        """Of a node."""
        return f"10.77.0.{number + 1}"

    def command(self, number: int) -> list[str]:
        """What stands before a command that is to run on a node."""
        return [*_IN_NAMESPACE, self._of(str(number))]

    def limit(self, number: int, rate: str) -> None:
        """From now on a node sends no faster than this, in the words of tc: ``100mbit``."""
        self._limit(self._of(str(number)), DEVICE, rate)

    def limit_inbound(self, number: int, rate: str) -> None:
        """From now on the switch sends no faster than this to a node."""
        self._limit(self._of(_SWITCH), self._cable(number), rate)

    def lose(self, number: int, percent: int) -> None:
        """From now on the switch loses this share of the packets that a node sends, at random."""
        rule = f"iifname {self._cable(number)} numgen random mod 100 < {percent} drop"
        chain = "{ type filter hook forward priority 0; }"
        said = f"add table bridge lossy\nadd chain bridge lossy drops {chain}\nadd rule bridge lossy drops {rule}\n"
        _run(*_IN_NAMESPACE, self._of(_SWITCH), "nft", "-f", "-", given=said)

    @staticmethod
    def _limit(namespace: str, device: str, rate: str) -> None:
        what = ("root", "tbf", "rate", rate, "burst", _BURST, "latency", _BACKLOG)
        _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, *what)

    def unplug(self, number: int) -> None:
        """Take the cable of a node out of the switch."""
        _ip("-n", self._of(_SWITCH), "link", "set", self._cable(number), "down")

    def drop(self, source: int, target: int) -> None:
        """Lose all packets from one node to another, unseen by both: they go to an address that no device has."""
        wrong = ("lladdr", "02:00:00:00:00:99", "dev", DEVICE, "nud", "permanent")
        _ip("-n", self._of(str(source)), "neigh", "replace", self.address(target), *wrong)

    def down(self) -> None:
        """Kill what runs there, and remove the namespaces."""
        deadline_s = time.monotonic() + _GONE_WITHIN_S
        for name in self._made:
            while (left := _pids(name)) and time.monotonic() < deadline_s:
                for pid in left:
                    _kill(pid)
                time.sleep(0.05)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        self._made.clear()

    def _of(self, what: str) -> str:
        return f"{self._name}-{what}"

    def _cable(self, number: int) -> str:
        return f"{self._name}p{number}"


def _pids(namespace: str) -> list[int]:
    done = subprocess.run(["ip", "netns", "pids", namespace], check=False, capture_output=True, text=True)
    return [int(pid) for pid in done.stdout.split()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str, given: str = "") -> None:
    subprocess.run(command, check=True, capture_output=True, input=given.encode())
