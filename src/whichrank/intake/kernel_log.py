"""What the kernel and NVIDIA's driver log: errors of devices (Xid), processes that were killed for lack of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from whichrank.intake.facts import Fact, Killed, Xid

MOST: Final = 1 << 16
_XID: Final = re.compile(
    r"(?:(\S{1,255}) kernel: .{0,255}?)?NVRM: Xid \((PCI:[0-9a-fA-F:.]{1,32})\): (\d{1,6})"
    r"(?:, pid='?(\d{1,10}|<unknown>)'?)?(?:, name='?([^,]{0,64}?)'?(?=,))?,? ?(.*)$"
)
_KILLED: Final = re.compile(r"[Kk]illed process (\d{1,10})\b")
_BUS: Final = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-9a-fA-F]))?$")
_CONSEQUENCES: Final = frozenset({43, 45, 63, 92, 154})
"""Xids that report what became of a process that ended, or of an error that was corrected (NVIDIA: XID Errors)."""


_OF_PROCESSES: Final = frozenset({13, 31, 32, 68, 69})
"""Xids that the program of a process leads to: they say nothing of another process on the same device."""


class KernelLog:
    """Such lines of a log.

    Attributes:
        xids: Errors of devices.
        killed: Processes that were killed for lack of memory.
    """

    def __init__(self) -> None:
        self.xids: list[Xid] = []
        self.killed: list[Killed] = []

    def see(self, line: str, host: str = "", at_s: float = -1.0) -> None:
        """A line that may be one of them."""
        if found := _XID.search(line):
            said_host, device, number, pid, _, words = found.groups()
            known = int(pid) if pid and pid.isdecimal() else 0
            if len(self.xids) < MOST:
                self.xids.append(Xid(int(number), device, said_host or host, known, words[:200], at_s))
        elif (found := _KILLED.search(line)) and "emory" in line and len(self.killed) < MOST:
            self.killed.append(Killed(int(found.group(1)), host, at_s))


def is_fault(xid: Xid) -> bool:
    """Is it an error of a device, and no consequence of a process that ended?"""
    return xid.number not in _CONSEQUENCES


def ranks_of(xid: Xid, facts: Mapping[int, Fact], buses: Mapping[int, str]) -> list[int]:
    """Ranks whose device it may be: by the process, else by the bus; on the host, if both say one.

    Args:
        xid: The error.
        facts: What is known of ranks.
        buses: By rank, the address of its device as NCCL writes it, such as `b3000`.
    """
    known = facts.values()
    if is_alias(xid.host, known):
        xid = replace(xid, host="")
    if xid.pid and (mine := [fact.rank for fact in known if fact.pid == xid.pid and same_host(xid.host, fact.host)]):
        return mine
    is_of_process = xid.pid > 0 and (xid.number in _OF_PROCESSES or xid.at_s < 0)  # it may be of any run
    address = _of_device(xid.device)
    return [
        rank
        for rank, bus in buses.items()
        if _of_nccl(bus) == address
        and (rank not in facts or same_host(xid.host, facts[rank].host))
        and not (is_of_process and rank in facts and facts[rank].pid)  # else it is another process on that device
    ]


def is_alias(host: str, facts: Iterable[Fact]) -> bool:
    """Is a name of another kind than all names of hosts of ranks: an address, or a pod? It may be any of these then.

    Names of nodes are alike but for their numbers, so `node7` is none of `node1` and `node2`.
    """
    return bool(host) and _kind(host) not in {_kind(fact.host) for fact in facts if fact.host}


def _kind(host: str) -> str:
    return re.sub(r"\d+", "", host.split(".")[0])


def same_host(one: str, other: str) -> bool:
    """May two names be of one host? A short and a long name are, and one that is not said is of any."""
    return not one or not other or one.split(".")[0] == other.split(".")[0]


def _of_device(device: str) -> tuple[int, int, int] | None:
    """Domain, bus and device of `PCI:0000:b3:00`."""
    found = _BUS.search(device)
    return (int(found.group(1) or "0", 16), int(found.group(2), 16), int(found.group(3), 16)) if found else None


def _of_nccl(bus: str) -> tuple[int, int, int] | None:
    """The same of `b3000`: domain, bus, device and function in 1 to 16 hexadecimal digits."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,16}", bus):
        return None
    number = int(bus, 16)
    return number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF


def ranks_killed(killed: Iterable[Killed], facts: Mapping[int, Fact]) -> dict[int, Killed]:
    """Ranks whose process the kernel has ended, by its pid, and on its host if both say one.

    A pid that ranks of two hosts have is of nobody.
    """
    found: dict[int, Killed] = {}
    for one in killed:
        host = "" if is_alias(one.host, facts.values()) else one.host
        ranks = [fact.rank for fact in facts.values() if fact.pid == one.pid and same_host(host, fact.host)]
        if len(ranks) == 1:
            found.setdefault(ranks[0], one)
    return found
