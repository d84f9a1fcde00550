"""Lines of NCCL's Inspector (formats 4.0 to 4.3): how long each collective took on one rank, once it was complete.

A file is of one process and holds a JSON object a line, for each operation or, from 4.3 on, headers and operations in
turn. With NCCL_INSPECTOR_DUMP_VERBOSE=1 an operation has its times as well. Operations below a size (8 KiB by default)
are not recorded, and none that hangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichrank.errors import FormatError

HINTS: Final = (b'"inspector_output_format_version"', b'"coll_perf"', b'"p2p_perf"')
MOST_LINE: Final = 1 << 20
MOST_OPS: Final = 1 << 24
MOST_RANKS: Final = 1 << 20
OP: Final = np.dtype(
    [
        ("comm", "i4"),  # index into `Inspected.comms`
        ("what", "i4"),  # index into `Inspected.names`
        ("number", "i8"),  # in the communicator
        ("size_bytes", "i8"),
        ("took_us", "f8"),
        ("start_us", "f8"),  # unix time; nan not known
        ("end_us", "f8"),
        ("dumped_us", "f8"),  # unix time
    ]
)


class _Header(msgspec.Struct):
    id: str = ""
    comm_name: str | None = None
    rank: int = -1
    n_ranks: int = 0


class _Metadata(msgspec.Struct):
    dump_timestamp_us: float = 0.0
    hostname: str = ""
    pid: int = 0


class _Kernel(msgspec.Struct):
    kernel_start_ts: float = 0.0
    kernel_stop_ts: float = 0.0


class _Times(msgspec.Struct):
    coll_start_ts: float = 0.0
    coll_stop_ts: float = 0.0
    kernel_events: list[_Kernel] = msgspec.field(default_factory=list)


class _Collective(msgspec.Struct):
    coll: str = ""
    coll_sn: int = -1
    coll_msg_size_bytes: int = 0
    coll_exec_time_us: float = 0.0
    event_trace_ts: _Times | None = None


class _Head(msgspec.Struct):
    header: _Header | None = None
    metadata: _Metadata | None = None


class _Line(_Head):
    coll_perf: _Collective | None = None
    dump_stats: _Head | None = None


@dataclass(frozen=True)
class Comm:
    """A communicator as a process knows it.

    Attributes:
        name: Its hash, the same on all members.
        desc: As the program has named it.
        rank: Of the process in it.
        size: Members.
    """

    name: str
    desc: str
    rank: int
    size: int


@dataclass(frozen=True)
class Inspected:
    """What one process has completed.

    Attributes:
        host: Where it ran.
        pid: Its process.
        comms: That it is in.
        names: Of collectives, as NCCL writes them.
        ops: Rows of `OP`, as they were written.
    """

    host: str
    pid: int
    comms: tuple[Comm, ...]
    names: tuple[str, ...]
    ops: NDArray[np.void]

    @property
    def rank(self) -> int:
        """In the largest communicator, whose ranks are taken for the job's."""
        return max(self.comms, key=lambda comm: comm.size).rank

    @property
    def world_size(self) -> int:
        """Of the largest communicator."""
        return max(comm.size for comm in self.comms)


def is_inspector(head: bytes) -> bool:
    """Does something that begins like this look like it?"""
    return head.lstrip()[:1] == b"{" and any(hint in head for hint in HINTS)


def read_inspector(stream: IO[bytes]) -> Inspected:
    """What a file says.

    Raises:
        FormatError: It has no collective that is complete, or is of several processes.
    """
    comms: dict[Comm, int] = {}
    names: dict[str, int] = {}
    rows: list[tuple[float, ...]] = []
    of, about = -1, _Metadata()
    for line in _lines(stream):
        for head in (line.dump_stats, line):
            if head and head.header and 0 <= head.header.rank < head.header.n_ranks <= MOST_RANKS:
                said = head.header
                comm = Comm(said.id[:64], (said.comm_name or "")[:64], said.rank, said.n_ranks)
                of = comms.setdefault(comm, len(comms))
            if head and head.metadata:
                if about.pid and (about.pid, about.hostname) != (head.metadata.pid, head.metadata.hostname):
                    raise FormatError("it is of several processes; give a file for each")
                about = head.metadata
        if line.coll_perf and of >= 0 and line.coll_perf.coll_sn >= 0:
            rows.append(_row(line.coll_perf, of, names, about.dump_timestamp_us))
            if len(rows) > MOST_OPS:
                raise FormatError(f"it has more than {MOST_OPS:,} operations")
    if not rows:
        raise FormatError("it has no collective that is complete")
    return Inspected(about.hostname[:64], about.pid, tuple(comms), tuple(names), np.array(rows, OP))


def _lines(stream: IO[bytes]) -> Iterator[_Line]:
    decoder = msgspec.json.Decoder(_Line)
    while line := stream.readline(MOST_LINE):
        if not line.strip():
            continue
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            if line.endswith(b"\n"):
                raise FormatError(f"a line cannot be read: {error}") from error
            return  # the last one was being written


def _row(one: _Collective, comm: int, names: dict[str, int], dumped_us: float) -> tuple[float, ...]:
    start_us = end_us = np.nan
    if times := one.event_trace_ts:
        kernels = [kernel for kernel in times.kernel_events if kernel.kernel_start_ts > 0 and kernel.kernel_stop_ts > 0]
        start_us = min((kernel.kernel_start_ts for kernel in kernels), default=times.coll_start_ts)
        end_us = max((kernel.kernel_stop_ts for kernel in kernels), default=times.coll_stop_ts)
        if not 0 < start_us <= end_us < 1e17:
            start_us = end_us = np.nan
    what = names.setdefault(one.coll[:32], len(names)) if len(names) < MOST_RANKS else 0
    size_bytes, took_us = min(max(one.coll_msg_size_bytes, 0), 1 << 60), min(max(one.coll_exec_time_us, 0.0), 1e15)
    return comm, what, min(one.coll_sn, 1 << 60), size_bytes, took_us, start_us, end_us, dumped_us
