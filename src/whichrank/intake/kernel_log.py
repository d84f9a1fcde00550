"""What the kernel and NVIDIA's driver log: errors of devices (Xid), processes that were killed for lack of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from whichrank.intake.facts import Fact, Xid

MOST: Final = 1 << 16
_XID: Final = re.compile(
    r"(?:(\S{1,255}) kernel: .{0,255}?)?NVRM: Xid \((PCI:[0-9a-fA-F:.]{1,32})\): (\d{1,6})"
    r"(?:, pid='?(\d{1,10}|<unknown>)'?)?(?:, name='?([^,]{0,64}?)'?(?=,))?,? ?(.*)$"
)
_KILLED: Final = re.compile(r"[Kk]illed process (\d{1,10})\b")
_BUS: Final = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-9a-fA-F]))?$")
_CONSEQUENCES: Final = frozenset({43, 45, 63, 92, 154})
"""Xids that report what became of a process that ended, or of an error that was corrected (NVIDIA: XID Errors)."""


class KernelLog:
    """Such lines of a log.

    Attributes:
        xids: Errors of devices.
        killed: Processes that were killed for lack of memory.
    """

    def __init__(self) -> None:
        self.xids: list[Xid] = []
        self.killed: list[int] = []

    def see(self, line: str, host: str = "", at_s: float = -1.0) -> None:
        """A line that may be one of them."""
        if found := _XID.search(line):
            said_host, device, number, pid, _, words = found.groups()
            known = int(pid) if pid and pid.isdecimal() else 0
            if len(self.xids) < MOST:
                self.xids.append(Xid(int(number), device, said_host or host, known, words[:200], at_s))
        elif (found := _KILLED.search(line)) and "emory" in line and len(self.killed) < MOST:
            self.killed.append(int(found.group(1)))


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
    if not any(fact.host and _same(xid.host, fact.host) for fact in known):
        xid = replace(xid, host="")  # a name that nobody else has, of a pod or an alias
    if xid.pid and (mine := [fact.rank for fact in known if fact.pid == xid.pid and _same(xid.host, fact.host)]):
        return mine
    address = _of_device(xid.device)
    return [
        rank
        for rank, bus in buses.items()
        if _of_nccl(bus) == address and (rank not in facts or _same(xid.host, facts[rank].host))
    ]


def _same(one: str, other: str) -> bool:
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


def lacked_memory(killed: Iterable[int], facts: Mapping[int, Fact]) -> list[int]:
    """Ranks whose process the kernel killed for lack of memory; a pid of two hosts is of nobody."""
    pids = set(killed)
    by_pid: dict[int, list[int]] = {}
    for fact in facts.values():
        if fact.pid in pids:
            by_pid.setdefault(fact.pid, []).append(fact.rank)
    return [ranks[0] for ranks in by_pid.values() if len(ranks) == 1]
