"""Makes a topology out of network namespaces and veth pairs, with the kernel's own routing and ECMP; needs root.

All of it is named ``wrlab-ID-...``, so that what a killed lab has left is found and removed by name. Each end of a
cable has a token bucket (tbf) of its own: what a place sends into it passes that, as it would pass a network card.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from whichrank.errors import UsageError
from whichrank.testbed.demo.scene import Flow
from whichrank.testbed.lab.namespaces import NAMED, PREFIX, may_mend, namespaces, remove_namespaces
from whichrank.testbed.lab.now_and_then import NowAndThen
from whichrank.testbed.lab.topology import LEAF, NODE, SPINE, Cable, Place, Route, Topology
from whichrank.testbed.lab.traffic import Traffic

DEVICE: Final = "eth0"
"""Of every node."""
_TOOLS: Final = ("ip", "tc", "nsenter", "setpriv")
_BURST_S: Final = 200e-6
_LEAST_BURST: Final = 5000
"""What may go at once: bytes, or for how long. A bucket that held more would let small messages through
at any rate, as no cable does; one of a single packet would cost a timer for each. Cables of up to 200mbit have
the same, so that a limit loses nothing of what waits."""
_BACKLOG: Final = "300ms"
_WATCHED_S: Final = 1.5
"""To see over which connections most is sent: an iteration or more."""
_HEADERS: Final = 1 << 12
"""Bytes that are sent in it where only the other end sends data."""
_SYS: Final = Path("/proc/sys")
_SYSCTLS: Final = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/fib_multipath_hash_policy": "1",  # addresses, ports and protocol
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/icmp_ratelimit": "0",  # every probe is answered
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}
_BY_FIELDS: Final = {"net/ipv4/fib_multipath_hash_policy": "3", "net/ipv4/fib_multipath_hash_fields": "55"}
"""Since Linux 5.12: the same fields, read from each packet as a switch does. Policy 1 takes the hash that a local
socket has put beside it: drawn for each connection, and again after a timeout, so that flows would go round a fault."""
_HASH_SEED: Final = "net/ipv4/fib_multipath_hash_seed"
"""Since Linux 6.11: which flow goes which way is the same in every lab then."""

_RATE: Final = re.compile(r"([1-9]\d{0,8})([kmg])bit")
_FASTEST: Final = 1e12
"""Bits per second, of a cable."""
_DROPS: Final = "lab"
"""Before the pid in the name of a run's table of nft."""
_TABLE: Final = re.compile(rf"\b{_DROPS}\d+\b")
_HOLDER: Final = re.compile(r"\bpid=(\d+)")
_SENT: Final = re.compile(r"\bbytes_sent:(\d+)")
_End = tuple[str, int]
_UNITS: Final = {"k": 1e3, "m": 1e6, "g": 1e9}


def can_be_here() -> bool:
    """Whether this machine has the tools, and this user the rights."""
    return os.geteuid() == 0 and all(map(shutil.which, _TOOLS))


class NoLabError(UsageError):
    """This machine gives no network namespaces, or not to this user."""


def require_tools() -> None:
    """See that a lab can be made with what is installed.

    Raises:
        NoLabError: It cannot.
    """
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    if missing:
        raise NoLabError(f"a lab needs {' and '.join(missing)}", mend="apt-get install iproute2 util-linux")


class Network:
    """One lab's network.

    Args:
        name: of the lab: letters and digits.
        topology: What to make.
        rate: Of every cable, in the words of tc: ``200mbit``; empty: as fast as this machine can.
    """

    def __init__(self, name: str, topology: Topology, rate: str) -> None:
        self.name = name
        self.topology = topology
        self.rate = rate
        self._cut: set[Cable] = set()
        self._limited: set[tuple[Place, str]] = set()
        self._dropping: set[Place] = set()
        self._table = f"{_DROPS}{os.getpid()}"
        """Of nft: jobs of several commands may run here, each with faults of its own."""

    def up(self) -> None:
        """Make it.

        Raises:
            NoLabError: It cannot be made here; nothing is left behind.
        """
        require_tools()
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as error:
            self.down()
            what = f"network namespaces cannot be made here: {error}"
            raise NoLabError(what, mend=may_mend()) from error

    def _make(self) -> None:
        _batch("", (f"netns add {self.namespace(place)}" for place in self.topology.places))
        for place in self.topology.places:
            self._set_up(place)
        _batch("", map(self._joining, self.topology.cables))
        for place in self.topology.places:
            _batch(self.namespace(place), self._addressing(place))
            self._rate(place)
        self._route()

    def _rate(self, place: Place) -> None:
        """The lab's rate for all that a place sends."""
        devices = [cable.device(place) for cable in self.topology.cables_of(place)]
        lines = (line for device in devices for line in (_emptied(device), _limit(device, self.rate)))
        _tc_batch(self.namespace(place), lines if self.rate else ())

    def _set_up(self, place: Place) -> None:
        values = dict(_SYSCTLS)
        if all((_SYS / key).exists() for key in _BY_FIELDS):
            values |= _BY_FIELDS
        if (_SYS / _HASH_SEED).exists():
            values[_HASH_SEED] = str(1 + self.topology.places.index(place))
        lines = "".join(f"echo {value} > {_SYS / key}\n" for key, value in values.items())
        _run(*self.command_at(place), "sh", "-e", given=lines)

    def _joining(self, cable: Cable) -> str:
        (lower, below), (upper, above) = cable.ends
        return f"link add {below} netns {self.namespace(lower)} type veth peer {above} netns {self.namespace(upper)}"

    def _addressing(self, place: Place) -> Iterator[str]:
        yield "link set lo up"
        for cable in self.topology.cables_of(place):
            device = cable.device(place)
            yield f"addr add {place.address}/32 dev {device}"
            yield f"link set {device} up"

    def _route(self) -> None:
        """As a routing protocol would that has heard of every cable that is out; nodes have a default route only."""
        nodes = {place for place in self.topology.places if place.kind == NODE}
        out = self._out_now()
        for place, routes in self.topology.routes(out).items():
            if place in nodes:
                lines = self._default_route(place, out)
            else:
                lines = [_route_line(place, route) for route in routes]
                lost = nodes - {route.to for route in routes}
                lines += [f"route replace unreachable {node.address}/32" for node in sorted(lost)]
            _batch(self.namespace(place), lines)

    def _out_now(self) -> set[Cable]:
        """Cables that somebody has taken out."""
        up: dict[Place, set[str]] = {}
        for place in {cable.upper for cable in self.topology.cables}:
            said = _run("ip", "-n", self.namespace(place), "-json", "link")
            up[place] = {link["ifname"] for link in msgspec.json.decode(said) if "UP" in link["flags"]}
        return {cable for cable in self.topology.cables if cable.device(cable.upper) not in up[cable.upper]}

    def _default_route(self, node: Place, out: Collection[Cable]) -> list[str]:
        """Over all ports that have a carrier; without any it stays as it is, and packets are lost."""
        hops = [(c.upper, c.device(node)) for c in self.topology.cables_of(node) if c not in out]
        return [f"route replace default src {node.address} {_next_hops(hops)}"] if hops else []

    def namespace(self, place: Place) -> str:
        """Its name."""
        return f"{PREFIX}{self.name}-{place}"

    def command_at(self, place: Place) -> list[str]:
        """What stands before a command that is to run in this place.

        Not `ip netns exec`, which puts a new /sys over the old one: control groups would be out of sight.
        """
        return ["nsenter", f"--net={NAMED / self.namespace(place)}", "--"]

    def cut(self, *cables: Cable) -> None:
        """Take cables out at their upper ends; the lower ends have no carrier then, and routes go round them."""
        self._cut |= set(cables)
        for cable in cables:
            self._set(cable, "down")
        self._route()

    def mend(self, *cables: Cable) -> None:
        """Put cables back."""
        for cable in cables:
            self._set(cable, "up")
        self._cut -= set(cables)
        self._route()

    def _set(self, cable: Cable, state: str) -> None:
        _batch(self.namespace(cable.upper), [f"link set {cable.device(cable.upper)} {state}"])

    def undo(self) -> None:
        """Undo what this process did to it: cables are back, rates as they were, and nothing is lost any more.

        What cannot be undone, since the lab has gone or it could not be done either, stays as it is.
        """
        if self._cut:
            with _whatever_fails():
                self.mend(*self._cut)
        for place, device in self._limited:
            line = _limit(device, self.rate) if self.rate else f"qdisc del dev {device} root"
            with _whatever_fails():
                _tc_batch(self.namespace(place), [line])
        for place in self._dropping:
            with _whatever_fails():
                self._forget_drops(place, self._table)
        self._limited.clear()
        self._dropping.clear()

    def restore(self) -> None:
        """Undo what any run did to it, also one that could not do so itself: nobody may be at work there."""
        self.mend(*self._out_now())
        for place in self.topology.places:
            self._rate(place)
            for table in self._tables(place):
                self._forget_drops(place, table)

    def _tables(self, place: Place) -> list[str]:
        """Of nft, made by runs."""
        if not shutil.which("nft"):
            return []
        command = [*self.command_at(place), "nft", "list", "tables", "ip"]
        said = subprocess.run(command, check=False, capture_output=True, text=True).stdout
        return _TABLE.findall(said)

    def _forget_drops(self, place: Place, table: str) -> None:
        there_or_not = f"add table ip {table}\ndelete table ip {table}\n"
        _run(*self.command_at(place), "nft", "-f", "-", given=there_or_not)

    # ---- by the number of a node ------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Of nodes."""
        return self.topology.nodes

    @property
    def cgroup_prefix(self) -> str:
        """What names of control groups begin with that are removed with this network."""
        return f"{PREFIX}{self.name}-"

    def address(self, number: int) -> str:
        """Of a node."""
        return Place(NODE, number).address

    def command(self, number: int) -> list[str]:
        """What stands before a command that is to run on a node."""
        return self.command_at(Place(NODE, number))

    def limit(self, number: int, rate: str) -> None:
        """From now on a node sends no faster than this, in the words of tc: ``100mbit``."""
        for cable in self._cables_of(number):
            self.limit_cable(cable.lower, cable, rate)

    def limit_inbound(self, number: int, rate: str) -> None:
        """From now on its leaves send no faster than this to a node."""
        for cable in self._cables_of(number):
            self.limit_cable(cable.upper, cable, rate)

    def lose(self, number: int, percent: int) -> None:
        """From now on its leaves lose this share of the packets that a node sends, at random."""
        for cable in self._cables_of(number):
            self._drop(cable.upper, f"iifname {cable.device(cable.upper)} numgen random mod 100 < {percent}")

    def unplug(self, number: int) -> None:
        """Take the cables of a node out."""
        self.cut(*self._cables_of(number))

    def mute(self, number: int) -> None:
        """Lose all that a node sends, unseen by it."""
        for cable in self._cables_of(number):
            self._drop(cable.upper, f"iifname {cable.device(cable.upper)}")

    def drop(self, source: int, target: int, ports: tuple[int, int] | None = None) -> None:
        """Lose all packets from one node to another, or those of one flow, unseen by both.

        Args:
            source: Number of the sending node.
            target: Number of the receiving node.
            ports: Of the sender and of the receiver.
        """
        flow = f" tcp sport {ports[0]} tcp dport {ports[1]}" if ports else ""
        for cable in self._cables_of(source):
            self._drop(cable.upper, f"ip saddr {self.address(source)} ip daddr {self.address(target)}{flow}")

    def swallow(self, spine: int | None) -> None:
        """Let nothing through a spine, unseen by the leaves; None: through any."""
        for number in range(self.topology.spines) if spine is None else (spine % self.topology.spines,):
            self._drop(Place(SPINE, number), "")

    def take_out(self, number: int) -> Callable[[], None]:
        """Take out a cable between leaf and spine, the number counted round; what is returned puts it back."""
        cables = [cable for cable in self.topology.cables if cable.upper.kind == SPINE]
        cable = cables[number % len(cables)]
        self.cut(cable)
        return lambda: self.mend(cable)

    def crowd(self, source: int, target: int, flows: int) -> Traffic:
        """From now on so many flows of others go from one node to another."""
        return Traffic(self.command(source), self.command(target), self.address(target), flows)

    def crowd_up(self, leaf: int, spine: int, flows: int) -> Traffic:
        """From now on so many flows of others go from a leaf to a spine, the number of which is counted round."""
        lower, upper = Place(LEAF, leaf), Place(SPINE, spine % self.topology.spines)
        for place, other in ((lower, upper), (upper, lower)):  # they have no routes to each other: nobody needs them
            device = Cable(lower, upper).device(place)
            _batch(self.namespace(place), [f"route replace {other.address}/32 dev {device} src {place.address}"])
        return Traffic(self.command_at(lower), self.command_at(upper), upper.address, flows)

    def limit_now_and_then(self, number: int, share: float, every_s: float) -> NowAndThen:
        """From now on a node sends no faster than this share of its rate, in every second span of this length."""
        less = f"{max(1, round(bits_of(self.rate) * share / 1e3))}kbit"
        return NowAndThen(lambda: self.limit(number, less), lambda: self.limit(number, self.rate), every_s)

    def spine_of(self, flow: Flow, source: int, target: int) -> int | None:
        """Over which upper switch the kernel sends a flow from one node to another; None: over none.

        Args:
            flow: Its ports.
            source: Number of the sending node.
            target: Number of the receiving node.
        """
        first = self._cables_of(source)[0]
        asked = [
            "route", "get", self.address(target), "from", self.address(source), "iif", first.device(first.upper),
            "ipproto", "tcp", "sport", str(flow.ports[0]), "dport", str(flow.ports[1]),
        ]  # fmt: skip
        said = _run("ip", "-n", self.namespace(first.upper), "-json", *asked)
        hop = msgspec.json.decode(said)[0].get("gateway")
        return next((p.number for p in self.topology.places if p.kind == SPINE and p.address == hop), None)

    def leaf_of(self, number: int) -> int:
        """The number of the leaf that a node's first port hangs on."""
        return self._cables_of(number)[0].upper.number

    def busiest_flow(self, sources: Iterable[int], targets: Iterable[int], ranks: Mapping[int, int]) -> Flow | None:
        """Of the connections between ranks on some nodes and on others the one over which most is sent now.

        Args:
            sources: Numbers of the sending nodes.
            targets: Numbers of the others.
            ranks: Pid of each rank.

        Returns:
            None if nothing is sent.
        """
        rank_of, sources = {pid: rank for rank, pid in ranks.items()}, list(sources)
        before = self._all_sockets(sources)
        time.sleep(_WATCHED_S)
        ours, theirs = self._all_sockets(sources), self._all_sockets(targets)
        flows = [
            (sent - before[mine, other][1], Flow(rank_of[pid], rank_of[theirs[other, mine][0]], (mine[1], other[1])))
            for (mine, other), (pid, sent) in ours.items()
            if (mine, other) in before and (other, mine) in theirs
            and pid in rank_of and theirs[other, mine][0] in rank_of
        ]  # fmt: skip
        most, flow = max(flows, default=(0, None))
        return flow if most > _HEADERS else None

    def _all_sockets(self, numbers: Iterable[int]) -> dict[tuple[_End, _End], tuple[int, int]]:
        found = dict[tuple[_End, _End], tuple[int, int]]()
        for number in numbers:
            found |= self._sockets(number)
        return found

    def _sockets(self, number: int) -> dict[tuple[_End, _End], tuple[int, int]]:
        """The connections of a node by both ends: the pid of one that holds it, and what was sent, in bytes."""
        found = {}
        for line in _run(*self.command(number), "ss", "-HOtnpi").decode().splitlines():
            pid, sent = _HOLDER.search(line), _SENT.search(line)
            if pid:
                mine, other = (_end(text) for text in line.split()[3:5])
                found[mine, other] = int(pid[1]), int(sent[1]) if sent else 0
        return found

    def _cables_of(self, number: int) -> tuple[Cable, ...]:
        return self.topology.cables_of(Place(NODE, number))

    def limit_cable(self, place: Place, cable: Cable, rate: str) -> None:
        """From now on a place sends no faster than this into a cable."""
        self._limited.add((place, cable.device(place)))
        is_smaller = bool(self.rate) and _burst(rate) < _burst(self.rate)
        emptied = [_emptied(cable.device(place))] if is_smaller else []
        _tc_batch(self.namespace(place), [*emptied, _limit(cable.device(place), rate)])

    def _drop(self, place: Place, packets: str) -> None:
        """A switch forwards these packets no more."""
        chain = "{ type filter hook forward priority 0; }"
        self._dropping.add(place)
        table = f"ip {self._table}"
        said = f"add table {table}\nadd chain {table} drops {chain}\nadd rule {table} drops {packets} drop\n"
        _run(*self.command_at(place), "nft", "-f", "-", given=said)

    def down(self) -> None:
        """Kill what runs there, and remove all of it."""
        remove_namespaces(name for name in namespaces() if name.startswith(f"{PREFIX}{self.name}-"))


def _end(text: str) -> _End:
    address, _, port = text.rpartition(":")
    return address.strip("[]").removeprefix("::ffff:"), int(port)


def checked_rate(rate: str) -> str:
    """The rate, if a cable can have it.

    Raises:
        UsageError: It cannot.
    """
    bits_of(rate)
    return rate


def _route_line(place: Place, route: Route) -> str:
    (first, device), *others = route.hops
    if first == route.to and not others:
        return f"route replace {route.to.address}/32 dev {device} scope link src {place.address}"
    return f"route replace {route.to.address}/32 src {place.address} {_next_hops(route.hops)}"


def _next_hops(hops: Collection[tuple[Place, str]]) -> str:
    return " ".join(f"nexthop via {hop.address} dev {device} onlink" for hop, device in hops)


def _limit(device: str, rate: str) -> str:
    return f"qdisc replace dev {device} root tbf rate {rate} burst {_burst(rate)} latency {_BACKLOG}"


def _burst(rate: str) -> int:
    return max(_LEAST_BURST, round(bits_of(rate) / 8 * _BURST_S))


def _emptied(device: str) -> str:
    """Before a bucket becomes smaller: a packet that waits and no longer fits would stay, and all behind it, for ever.

    A queue of another kind takes its place, and what waits is lost; a bucket that is only changed keeps it.
    """
    return f"qdisc replace dev {device} root pfifo"


def bits_of(rate: str) -> float:
    """Per second, of a rate in the words of tc.

    Raises:
        UsageError: No cable has this rate.
    """
    match = _RATE.fullmatch(rate)
    bits = int(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < bits <= _FASTEST:
        raise UsageError(f"a cable cannot have the rate {rate!r}", mend="--rate 200mbit")
    return bits


def _batch(namespace: str, lines: Iterable[str]) -> None:
    _run("ip", *(("-n", namespace) if namespace else ()), "-batch", "-", given="\n".join(lines))


def _tc_batch(namespace: str, lines: Iterable[str]) -> None:
    _run("tc", "-n", namespace, "-batch", "-", given="\n".join(lines))


class ToolError(subprocess.CalledProcessError):
    """A tool has failed; its text is what the tool said."""

    def __str__(self) -> str:
        said: str = self.stderr.decode(errors="replace").strip()
        return f"{self.cmd[0]}: {said}" if said else super().__str__()


def _run(*command: str, given: str = "") -> bytes:
    done = subprocess.run(command, check=False, capture_output=True, input=given.encode())
    if done.returncode:
        raise ToolError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout


def _whatever_fails() -> contextlib.AbstractContextManager[None]:
    """Of several things to undo: the next one is undone all the same."""
    return contextlib.suppress(OSError, subprocess.CalledProcessError)
