"""Both ends of sockets by inode: Unix sockets by sock_diag, TCP by /proc/PID/net/tcp of the process's network."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_REQUEST_DUMP: Final = 0x301
_DONE: Final = 3
_ERROR: Final = 2
_PEER: Final = 2
_SHOW_PEER: Final = 1 << 2
_ALL_STATES: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBHIIIII")
_UNIX: Final = struct.Struct("=BBBBIII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_BUFFER: Final = 1 << 18
_ESTABLISHED: Final = "01"
MOST_LINES: Final = 65_536

Address = tuple[str, int]


class Socket(NamedTuple):
    """A TCP connection."""

    local: Address
    remote: Address


def peers_of_unix(inodes: Iterable[int]) -> list[int]:
    """Inodes of the other ends of Unix sockets; nothing for what is none, or where the kernel does not answer.

    Source: unix_diag, man 7 sock_diag.
    """
    wanted = set(inodes)
    if not wanted:
        return []
    found: list[int] = []
    with contextlib.suppress(OSError, struct.error), _netlink() as netlink:
        body = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _SHOW_PEER, 0, 0)
        netlink.send(_HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + body)
        while True:
            data, at = netlink.recv(_BUFFER), 0
            while at + _HEADER.size <= len(data):
                size, kind, _, _, _ = _HEADER.unpack_from(data, at)
                if kind in (_DONE, _ERROR) or size < _HEADER.size:
                    return found
                inode, peer = _unix_peer(data[at + _HEADER.size : at + size])
                if inode in wanted and peer:
                    found.append(peer)
                at += -size % 4 + size
    return found


def _netlink() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    made.settimeout(1.0)
    return made


def _unix_peer(message: bytes) -> tuple[int, int]:
    """Inode of a Unix socket and of its other end, 0 none."""
    _, _, _, _, inode, _, _ = _UNIX.unpack_from(message)
    at = _UNIX.size
    while at + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, at)
        if size < _ATTRIBUTE.size:
            break
        if kind == _PEER:
            return inode, int.from_bytes(message[at + 4 : at + 8], "little")
        at += -size % 4 + size
    return inode, 0


def tcp_sockets(pid: int) -> dict[int, Socket]:
    """The TCP connections of the network that a process is in, by inode."""
    found: dict[int, Socket] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, ValueError):
            lines = Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()[1:MOST_LINES]
            for fields in (line.split() for line in lines):
                if len(fields) > 9 and fields[3] == _ESTABLISHED:
                    found[int(fields[9])] = Socket(_address(fields[1]), _address(fields[2]))
    return found


def _address(text: str) -> Address:
    """As /proc/net/tcp writes it: words of the address in the byte order of the machine, and the port."""
    words, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    address = ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(port, 16)
