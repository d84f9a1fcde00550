"""What the programs of `test_socket_sensor.py` start from: a ring of their own and a look at its tables.

It runs inside the preloaded process, so it may import nothing that makes connections.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import tempfile
from pathlib import Path
from typing import NamedTuple

FRAME_BLOCKS, FRAME_CHANNELS, CONNECTIONS = 8, 8, 256
ROW = struct.Struct("<II16s16sHHi6Q128s")
OPEN, CLOSED = 1, 2


class Identity(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("rank", "local_rank", "world", "local_world", "restart")] + [
        ("host", ctypes.c_char_p),
        ("job", ctypes.c_char_p),
    ]


class Connection(NamedTuple):
    version: int
    state: int
    local_addr: bytes
    remote_addr: bytes
    local_port: int
    remote_port: int
    fd: int
    messages_sent: int
    bytes_sent: int
    messages_received: int
    bytes_received: int
    last_send_ns: int
    last_receive_ns: int
    pace: bytes

    def paced_bytes(self) -> int:
        """Read so soon after the read before that the pace is known."""
        return sum(struct.unpack("<16Q", self.pace)[::2])


class Ring:
    """A ring of this process, attached to the preloaded sensor."""

    def __init__(self) -> None:
        # Privately, as ctypes does by default: the sensor must not need the core's symbols.
        self.core = core = ctypes.CDLL(os.environ["TEST_CORE"])
        core.wr_layout_json.restype = ctypes.c_char_p
        core.wr_ring_create.restype = ctypes.c_void_p
        self.layout: dict[str, int] = json.loads(core.wr_layout_json())
        path = tempfile.mktemp(dir="/dev/shm")  # the ring refuses a file that exists
        self.at: int = core.wr_ring_create(path.encode(), ctypes.byref(Identity(0, 0, 1, 1, 0, b"h", b"j")))
        assert self.at, "no ring"
        self.fd = os.open(path, os.O_RDONLY)
        Path(path).unlink()
        assert self.layout["sizeof.wr_connection"] == ROW.size
        ctypes.CDLL(None).wr_socket_attach(ctypes.c_void_p(self.at))

    def connections(self) -> list[Connection]:
        data = os.pread(self.fd, CONNECTIONS * ROW.size, self.layout["wr_ring.connection"])
        rows = [Connection(*row) for row in ROW.iter_unpack(data)]
        return [row for row in rows if row.state]

    def of(self, end: socket.socket) -> Connection:
        port = end.getsockname()[1], end.getpeername()[1]
        (row,) = [c for c in self.connections() if c.state == OPEN and (c.local_port, c.remote_port) == port]
        return row

    def frame(self) -> tuple[int, int]:
        """Messages sent and received in all blocks of the frame."""
        data = os.pread(self.fd, 1184, self.layout["wr_ring.frame"])
        counts = [
            struct.unpack_from("<QQ", data, 32 + 144 * block + 16 + 16 * channel)
            for block in range(FRAME_BLOCKS)
            for channel in range(FRAME_CHANNELS)
        ]
        return sum(c[0] for c in counts), sum(c[1] for c in counts)

    def dropped(self) -> int:
        at = self.layout["wr_header.dropped_records"] + 5 * 8
        (count,) = struct.unpack("<Q", os.pread(self.fd, 8, at))
        return int(count)

    def everything(self) -> bytes:
        return os.pread(self.fd, self.layout["sizeof.wr_ring"], 0)


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of one TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, accepted


def open_as(number: int) -> int:
    """A file that is no socket, under a descriptor that was just closed."""
    while (fd := os.open("/dev/zero", os.O_RDONLY)) < number:
        pass
    assert fd == number
    return fd
