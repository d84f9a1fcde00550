"""Writes a ring through the native library, as a sensor would, but without torch.

Imported by tests, and run as a program it is a rank whose every step a test commands over stdin:

    python ring_writer.py DIR RANK WORLD [--restart N]
    comm NAME GROUP_RANK RANK,RANK,...   open a communicator; answers its slot
    op SLOT [COUNT]                      operations begun and ended
    begin SLOT [FLAGS]                   an operation that stays in flight, still inside its call
    issued | poll | wait | unwait | end  what happens to the latest one that was begun
    rate SLOT PER_S                      from now on operations by themselves
    lock                                 the main thread sleeps in a futex until the process is killed
    write BYTES PATH | child             write a file; start a child that uses a CPU
    exit CODE
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

from whichrank.errors import NativeLibraryError
from whichrank.native import CORE, native_path

NATIVE = Path(__file__).parents[2] / "native"
ALL_REDUCE, SEND = 1, 32
DONE = 1
U16, U32, U64, I32, I64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64


class Op(ctypes.Structure):
    """`wr_op`."""

    _fields_ = (
        ("comm_slot", U16),
        ("kind", ctypes.c_uint8),
        ("dtype", ctypes.c_uint8),
        ("reduce_op", ctypes.c_uint8),
        ("flags", U16),
        ("peer", I32),
        ("tag", U32),
        ("timeout_ms", U32),
        ("count", U64),
        ("out_count", U64),
        ("signature", U64),
        ("splits", U32),
        ("split_in", ctypes.POINTER(I64)),
        ("split_out", ctypes.POINTER(I64)),
        ("epoch", ctypes.c_uint8),
        ("row", ctypes.c_int16),
        ("pair", ctypes.c_int16),
        ("counter", U32),
        ("ordinal", U32),
        ("tid", U32),
        ("comm_id", U64),
        ("t_issue_ns", U64),
        ("t_start_ns", U64),
        ("wait_ns", U64),
        ("wait_since_ns", U64),
        ("ended", U32),
        ("holders", U32),
    )


class Identity(ctypes.Structure):
    """`wr_identity`."""

    _fields_ = (
        *((name, I32) for name in ("rank", "local_rank", "world_size", "local_world_size", "restart_count")),
        ("host", ctypes.c_char_p),
        ("job", ctypes.c_char_p),
    )


@cache
def core() -> ctypes.CDLL:
    """The native library that is installed, else one built from the sources."""
    try:
        library = ctypes.CDLL(str(native_path(CORE)))
    except NativeLibraryError:
        library = ctypes.CDLL(str(build(Path(tempfile.mkdtemp(prefix="whichrank-native-")))))
    library.wr_ring_create.restype = ctypes.c_void_p
    library.wr_ring_create.argtypes = (ctypes.c_char_p, ctypes.POINTER(Identity))
    library.wr_layout_json.restype = ctypes.c_char_p
    library.wr_comm_open.argtypes = (
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p),
        *(U32, U32, ctypes.POINTER(I32), U32),
    )
    library.wr_comm_close.argtypes = (ctypes.c_void_p, ctypes.c_int)
    for name in ("wr_op_begin", "wr_op_issued", "wr_op_polled"):
        getattr(library, name).argtypes = (ctypes.c_void_p, ctypes.POINTER(Op))
        getattr(library, name).restype = None
    for name in ("wr_op_end", "wr_wait_begin", "wr_wait_end"):
        getattr(library, name).argtypes = (ctypes.c_void_p, ctypes.POINTER(Op), ctypes.c_int)
    library.wr_remote_wait_begin.argtypes = (ctypes.c_void_p, ctypes.c_int32)
    library.wr_meeting_begin.argtypes = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint32)
    library.wr_note_exception.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    library.wr_phase_set.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    return library


def build(folder: Path) -> Path:
    """Compile the core library with the plain compiler."""
    sources = [path for path in (NATIVE / "src").glob("*.c") if path.name != "socket_sensor.c"]
    library = folder / CORE
    command = ["gcc", "-shared", "-fPIC", "-O2", "-std=gnu11", f"-I{NATIVE / 'include'}", *map(str, sources)]
    subprocess.run([*command, "-o", str(library), "-lpthread", "-ldl"], check=True)
    return library


class RingWriter:
    """A ring of this process at `path`."""

    def __init__(self, path: Path, rank: int = 0, world: int = 1, restart: int = 0) -> None:
        identity = Identity(rank, rank, world, world, restart, b"host", b"job")
        self.core = core()
        self.ring = self.core.wr_ring_create(str(path).encode(), ctypes.byref(identity))
        if not self.ring:
            raise OSError(f"no ring at {path}")
        self.path = path

    def comm(self, name: str, members: list[int], group_rank: int = 0, desc: str = "", *, known: bool = True) -> int:
        """Open a communicator and return its slot."""
        listed = (I32 * len(members))(*members) if known else None
        slot: int = self.core.wr_comm_open(
            self.ring, name.encode(), desc.encode(), b"gloo", len(members), group_rank, listed, 60_000
        )
        return slot

    def close_comm(self, slot: int) -> None:
        self.core.wr_comm_close(self.ring, slot)

    def begin(
        self, slot: int, kind: int = ALL_REDUCE, *, peer: int = -1, tag: int = 0, count: int = 4, flags: int = 0
    ) -> Op:
        """Begin an operation; it is inside its call."""
        op = Op(comm_slot=slot, kind=kind, peer=peer, tag=tag, count=count, flags=flags, dtype=7, timeout_ms=60_000)
        self.core.wr_op_begin(self.ring, op)
        return op

    def issued(self, op: Op) -> None:
        self.core.wr_op_issued(self.ring, op)

    def polled(self, op: Op) -> None:
        self.core.wr_op_polled(self.ring, op)

    def calls(self, peer: int) -> None:
        """From now on it waits for the answer of a remote call."""
        assert self.core.wr_remote_wait_begin(self.ring, peer) >= 0

    def meets(self, first: int, stride: int, size: int) -> None:
        """From now on it waits for the members of a new communicator."""
        assert self.core.wr_meeting_begin(self.ring, first, stride, size) >= 0

    def wait(self, op: Op) -> int:
        row: int = self.core.wr_wait_begin(self.ring, op, 1)
        return row

    def unwait(self, op: Op, row: int) -> None:
        self.core.wr_wait_end(self.ring, op, row)

    def end(self, op: Op, status: int = DONE) -> None:
        self.core.wr_op_end(self.ring, op, status)

    def op(self, slot: int, times: int = 1) -> None:
        """Whole operations."""
        for _ in range(times):
            op = self.begin(slot)
            self.issued(op)
            self.end(op)


def main(folder: str, rank: str, world: str, *options: str) -> None:
    """Obey stdin."""
    restart = int(options[1]) if options[:1] == ("--restart",) else 0
    writer = RingWriter(Path(folder) / f"{os.getpid()}.ring", int(rank), int(world), restart)
    latest, row = Op(), -1
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        answer: object = "ok"
        if word == "comm":
            answer = writer.comm(rest[0], [int(member) for member in rest[2].split(",")], int(rest[1]))
        elif word == "op":
            writer.op(int(rest[0]), int(rest[1]) if rest[1:] else 1)
        elif word == "begin":
            latest = writer.begin(int(rest[0]), flags=int(rest[1]) if rest[1:] else 0)
        elif word == "issued":
            writer.issued(latest)
        elif word == "poll":
            writer.polled(latest)
        elif word == "wait":
            row = writer.wait(latest)
        elif word == "unwait":
            writer.unwait(latest, row)
        elif word == "end":
            writer.end(latest)
        elif word == "rate":
            threading.Thread(target=run_at, args=(writer, int(rest[0]), int(rest[1])), daemon=True).start()
        elif word == "write":
            Path(rest[1]).write_bytes(bytes(int(rest[0])))
        elif word == "child":
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
        elif word == "exit":
            os._exit(int(rest[0]))
        print(answer, flush=True)
        if word == "lock":
            ctypes.CDLL(None).pthread_mutex_lock(locked_mutex())
    os._exit(0)


def run_at(writer: RingWriter, slot: int, per_s: int) -> None:
    """Operations at an even rate, a hundred bursts a second."""
    next_s = time.monotonic()
    while True:
        writer.op(slot, max(1, per_s // 100))
        next_s += 0.01
        time.sleep(max(0.0, next_s - time.monotonic()))


def locked_mutex() -> ctypes.Array[ctypes.c_char]:
    """A mutex that this very thread holds: locking it again sleeps for ever."""
    mutex = ctypes.create_string_buffer(64)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
    return mutex


if __name__ == "__main__":
    main(*sys.argv[1:])
