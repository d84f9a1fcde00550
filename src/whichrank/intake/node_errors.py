"""Errors that the kernel logs of what the ranks of a node share: NVSwitches (SXid), processors and memory (`mce`).

A line names a switch, a processor or a process, and the node it is of by who logs it. NVSwitch errors that are not
fatal, and errors that the machine has corrected, hang nobody: they are left out. A process that the kernel ends because
its memory is damaged is named by its pid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from whichrank.intake.facts import Killed
from whichrank.intake.log_time import UNTIMED
from whichrank.intake.plain_text import for_people
from whichrank.model.reports import Report, Told

HINTS: Final = ("SXid (PCI:", "[Hardware Error]: CPU", "due to hardware memory corruption", "Fatal machine check")
MOST: Final = 1 << 14
UNCORRECTED: Final = 1 << 61
"""The bit UC of MCi_STATUS (Intel SDM, volume 3B, machine-check architecture; AMD alike)."""
_HOST: Final = r"(?:(\S{1,255}) kernel: .{0,255}?)?"
_SXID: Final = re.compile(
    _HOST + r"nvidia-(nvswitch\d{1,4}): SXid \(PCI:[0-9a-fA-F:.]{1,32}\): (\d{1,6}), Fatal, (.{1,160})$"
)
_MCE: Final = re.compile(
    _HOST + r"\[Hardware Error\]: CPU:? ?(\d{1,5})(?:: Machine Check(?: Exception)?: [0-9a-f]{1,16} Bank \d{1,3}: "
    r"|.{0,64}? MC\d{1,3}_STATUS\[.{0,160}?\]: 0x)([0-9a-f]{1,16})\b"
)
_PANIC: Final = re.compile(_HOST + r"Kernel panic - not syncing: Fatal machine check")
_CORRUPT: Final = re.compile(
    r"(?:Killing|Sending SIGBUS to) \S{1,64}:(\d{1,10}) (?:early )?due to hardware memory corruption"
)


@dataclass(frozen=True)
class NodeError:
    """An error of what the ranks of a node share.

    Attributes:
        host: Of the node; empty: the line does not say.
        text: What the kernel says, in short.
        at_s: When, see `log_time`.
    """

    host: str
    text: str
    at_s: float = UNTIMED


class NodeErrors:
    """Such lines of a log.

    Attributes:
        errors: Of nodes, each once.
        corrupted: Processes that were ended since their memory is damaged.
    """

    def __init__(self) -> None:
        self.errors: dict[NodeError, None] = {}
        self.corrupted: list[Killed] = []

    def see(self, line: str, host: str = "", at_s: float = UNTIMED) -> None:
        """A line in which one of `HINTS` stands."""
        if found := _SXID.search(line):
            text = f"SXid {int(found.group(3))} of {found.group(2)} (fatal: {found.group(4).strip()})"
            self._add(found.group(1) or host, text, at_s)
        elif found := _MCE.search(line):
            if int(found.group(3), 16) & UNCORRECTED:
                text = f"a machine check of processor {int(found.group(2))} that was not corrected"
                self._add(found.group(1) or host, text, at_s)
        elif found := _PANIC.search(line):
            self._add(found.group(1) or host, "a kernel panic by a machine check", at_s)
        elif (found := _CORRUPT.search(line)) and len(self.corrupted) < MOST:
            self.corrupted.append(Killed(int(found.group(1)), host, at_s))

    def _add(self, host: str, text: str, at_s: float) -> None:
        if len(self.errors) < MOST:
            self.errors.setdefault(NodeError(host, for_people(text, 160), at_s))


def reports_of(errors: Iterable[NodeError], hosts: Mapping[int, str]) -> tuple[list[Report], list[str]]:
    """Whose node each is, and what cannot be said of a rank, for people.

    Args:
        errors: Of nodes.
        hosts: By rank, its host as far as that is known.
    """
    reports, unknown = [], []
    for error in errors:
        ranks = ranks_on(error.host, hosts)
        if ranks:
            reports.append(Report(Told.NODE_ERROR, tuple(ranks), error.text, at_s=error.at_s))
        else:
            where = f" of {for_people(error.host, 96)}" if error.host else ""
            unknown.append(f"the kernel{where} reports {error.text}; no line says which ranks are there")
    return reports, unknown


def ranks_on(host: str, hosts: Mapping[int, str]) -> list[int]:
    """Ranks on a host; where it is not said and all are on one, those."""
    if not host:
        return sorted(hosts) if len(set(hosts.values())) == 1 else []
    short = host.split(".")[0]
    return sorted(
        rank for rank, one in hosts.items() if one == host or (one.split(".")[0] == short and not short.isdecimal())
    )
