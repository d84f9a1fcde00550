"""The kernel's own view of a job's TCP connections: what is unsent, unacknowledged, retransmitted (the `tcp` sensor).

Read from outside with sock_diag (man 7 sock_diag), as `ss -tin` does; no rank needs a preload for it. A socket belongs
to the rank that has its inode among its open files. Everything is reported as rows of TCP_ROW.

The kernel's answer is cut into rows here and not by a netlink library: those make an object of every field, at six
times the cost (docs/explain/dependencies.md).
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from whichrank.agent.arrivals import Arrivals
from whichrank.agent.rank import RankWatch
from whichrank.model.telemetry import TCP_INFO, TCP_ROW
from whichrank.ring.reader import Rows

EVERY_NS: Final = 5_000_000_000
"""While all is well, at most: where slowness is judged over a short window, as often as the rest is read."""
CLOSELY_EVERY_NS: Final = 500_000_000
"""While something is suspected, and when groups were made, since connections are made then; later less and less."""
_ABOUT: Final = 0.9
"""Looks of an agent come twice a second at most as well: one that comes a little sooner counts."""
REPORTED: Final = 3
"""How often each snapshot is reported, since a batch that nobody takes is not sent again."""
MOST_FILES: Final = 4096
"""Open files of a rank that are looked at."""
MOST_SOCKETS: Final = 16_384
"""Sockets of a node that are reported."""

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_REQUEST_DUMP: Final = 0x301
_DONE, _ERROR = 3, 2
_INFO: Final = 2
_WANT_INFO: Final = 1 << (_INFO - 1)
_CONNECTED: Final = 0b1011_0011_1110
"""Established, half open or half closed; not: listening, closed, in TIME-WAIT."""
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI48s")
_SOCKET: Final = struct.Struct("=BBBB2s2s16s16s4s8sIIIII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_BUFFER: Final = 1 << 18
_FOR_GOOD: Final = frozenset((errno.EPERM, errno.EACCES, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.ENOENT))
"""There is no sock_diag here, or not for us. Anything else may be otherwise next time."""
_SOCKET_LINK: Final = "socket:["


class Connections:
    """The connections of the ranks of a node. Where the kernel does not answer, nothing is reported."""

    def __init__(self) -> None:
        self._netlink: socket.socket | None = None
        self._failed = False
        self._last_ns = -EVERY_NS
        self._every_ns = CLOSELY_EVERY_NS
        self._latest = np.empty(0, TCP_ROW)
        self._arrivals = Arrivals()
        self._report_again = 0
        self._processes: list[tuple[int, int]] = []
        self._rank_of: dict[int, int] = {}  # by the inode of a socket
        self._of_others: set[int] = set()  # inodes

    def expect_new(self) -> None:
        """Groups were made: poll soon."""
        self._every_ns = CLOSELY_EVERY_NS

    def rows(self, watches: Sequence[RankWatch], *, closely: bool, every_s: float) -> Rows:
        """Rows of TCP_ROW of connections of these ranks; none once the latest snapshot was reported often enough.

        Args:
            watches: The ranks.
            closely: Something is suspected, or a link is in doubt.
            every_s: Seconds between two snapshots while all is well; 0: not known.
        """
        now_ns = time.monotonic_ns()
        if self._failed:
            return self._latest
        least_ns: float = self._every_ns
        if closely:
            least_ns = _ABOUT * CLOSELY_EVERY_NS
        elif 0 < every_s * 1e9 < EVERY_NS:
            least_ns = min(self._every_ns, _ABOUT * max(CLOSELY_EVERY_NS, every_s * 1e9))
        if now_ns - self._last_ns < least_ns:
            self._report_again -= 1
            return self._latest if self._report_again >= 0 else self._latest[:0]
        self._last_ns, self._report_again = now_ns, REPORTED - 1
        self._every_ns = min(2 * self._every_ns, EVERY_NS)
        processes = [(w.pid, w.rank) for w in watches if not w.ended_ns and w.rank >= 0]
        if processes != self._processes:
            self._processes = processes
            self._rank_of.clear()
            self._of_others.clear()
        try:
            self._latest = self._read(now_ns) if processes else self._latest[:0]
            self._arrivals.add_to(self._latest, watches, now_ns / 1e9)
        except (OSError, struct.error) as error:
            self._failed = isinstance(error, OSError) and error.errno in _FOR_GOOD
            self._latest = self._latest[:0]
            self.close()  # an answer may still be under way; the next snapshot asks anew
        return self._latest

    def close(self) -> None:
        """Let go of the kernel."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _read(self, now_ns: int) -> Rows:
        found = [entry for family in (socket.AF_INET, socket.AF_INET6) for entry in self._dump(family)]
        self._learn({inode for inode, _ in found})
        known = ((self._rank_of.get(inode), row) for inode, row in found)
        reported = [(rank, row) for rank, row in known if rank is not None][:MOST_SOCKETS]
        rows = np.frombuffer(b"".join([row for _, row in reported]), TCP_ROW).copy()
        rows["rank"] = [rank for rank, _ in reported]
        rows["read_ns"] = now_ns
        return rows

    def _learn(self, inodes: set[int]) -> None:
        """Whose sockets these are. Open files are looked through only for new ones: no socket gets another inode."""
        if not inodes <= self._rank_of.keys() | self._of_others:
            self._rank_of = {inode: rank for pid, rank in self._processes for inode in _inodes(pid)}
        self._of_others = inodes - self._rank_of.keys()

    def _dump(self, family: int) -> Iterator[tuple[int, bytes]]:
        """Inode and row of each connection of an address family."""
        if self._netlink is None:
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
            self._netlink.settimeout(1.0)
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, _WANT_INFO, _CONNECTED, bytes(48))
        header = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        self._netlink.sendto(header + body, (0, 0))
        while True:
            data = self._netlink.recv(_BUFFER)
            at = 0
            while at + _HEADER.size <= len(data):
                size, kind, _, _, _ = _HEADER.unpack_from(data, at)
                if kind == _DONE:
                    return
                if kind == _ERROR or size < _HEADER.size or at + size > len(data):
                    raise OSError("the kernel does not answer sock_diag")
                yield _row(data[at + _HEADER.size : at + size])
                at += -size % 4 + size


def _row(message: bytes) -> tuple[int, bytes]:
    """Inode and row of one answer."""
    family, state, _, _, sport, dport, src, dst, _, _, _, unread, unsent, _, inode = _SOCKET.unpack_from(message)
    at, info = _SOCKET.size, b""
    while at + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, at)
        if size < _ATTRIBUTE.size:
            break
        if kind == _INFO:
            info = message[at + _ATTRIBUTE.size : at + size]
        at += -size % 4 + size
    ports = int.from_bytes(sport, "big"), int.from_bytes(dport, "big")
    ends = struct.pack("=16s16sHH", _address(family, src), _address(family, dst), *ports)
    length = TCP_INFO.itemsize
    return inode, struct.pack("=i4xQ36sIIB19x", 0, 0, ends, unread, unsent, state) + info[:length].ljust(length, b"\0")


def _address(family: int, address: bytes) -> bytes:
    """IPv6, or IPv4 mapped, as in the ring."""
    return address if family == socket.AF_INET6 else bytes(10) + b"\xff\xff" + address[:4]


def _inodes(pid: int) -> Iterator[int]:
    """Inodes of the sockets that a process has open."""
    with contextlib.suppress(OSError):
        for file in islice(Path(f"/proc/{pid}/fd").iterdir(), MOST_FILES):
            with contextlib.suppress(OSError, ValueError):
                target = str(file.readlink())
                if target.startswith(_SOCKET_LINK):
                    yield int(target[len(_SOCKET_LINK) : -1])
