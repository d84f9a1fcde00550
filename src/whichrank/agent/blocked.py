"""For what other process a thread waits, as far as the kernel says: a read from a pipe or a socket, or a child's end.

A rank may wait for another rank outside of any operation: for a key in a store, a queue between processes, a message on
a socket of its own. It looks as if it did nothing then, and its stack often ends in the user's own line, since the call
is C code. The kernel knows better: /proc/PID/task/TID/syscall says in which system call the thread is and on which
file, and the other end of a pipe or socket is open in the process that would have to write.

Reading that needs the same privilege as a stack does. What cannot be read is not reported.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from whichrank.agent.processes import read
from whichrank.agent.sockets import Socket, peers_of_unix, tcp_sockets
from whichrank.model.telemetry import Source, SourceKind

_READS: Final = {"x86_64": (0, 19, 45, 47), "aarch64": (63, 65, 207, 212)}
"""read, readv, recvfrom, recvmsg."""
_POLLS: Final = {"x86_64": (7, 271), "aarch64": (73,)}
"""poll, ppoll."""
_RESTARTED: Final = {"x86_64": (219,), "aarch64": (128,)}
"""restart_syscall: a call that somebody has interrupted, py-spy for instance, goes on with its arguments. Of those that
may be restarted so only poll has a small second one."""
_WAITS: Final = {"x86_64": (61, 247), "aarch64": (260, 95)}
"""wait4, waitid."""
_MACHINE: Final = platform.machine()
_POLLFD: Final = struct.Struct("=ihh")
MOST_POLLED: Final = 16
MOST_PROCESSES: Final = 8192
MOST_FILES: Final = 4096
SHARED: Final = 2
"""Connections to one port from which on it is a service for many, such as a store: who answers is not who is
waited for."""


class _Files(NamedTuple):
    pipes: tuple[int, ...]
    sockets: tuple[int, ...]


class Family:
    """The processes of a job on this node as a tree: whose descendant is a process?

    Args:
        ranks: Rank by pid.
    """

    def __init__(self, ranks: Mapping[int, int]) -> None:
        self._ranks = ranks
        self._parent = dict(_parents())

    def members(self) -> list[int]:
        """Ranks, their descendants, and the processes that they come from."""
        ancestors = {above for pid in self._ranks for above in self._above(pid)}
        return [pid for pid in self._parent if pid in ancestors or self.rank_of(pid) is not None]

    def rank_of(self, pid: int) -> int | None:
        """The rank that a process is, or descends from; None of none."""
        return next((self._ranks[p] for p in (pid, *self._above(pid)) if p in self._ranks), None)

    def descends_from(self, pid: int, ancestor: int) -> bool:
        """Was a process started by this one, or by one that was?"""
        return ancestor in self._above(pid)

    def _above(self, pid: int) -> Iterator[int]:
        for _ in range(64):  # a pid may be another's by now: no circle is followed for ever
            pid = self._parent.get(pid, 0)
            if pid <= 1:
                return
            yield pid


def _parents() -> Iterator[tuple[int, int]]:
    for entry in sorted(os.listdir("/proc"), reverse=True)[:MOST_PROCESSES]:  # noqa: PTH208  # thousands of names
        if entry.isdigit():
            content = read(f"/proc/{entry}/stat")
            fields = content[content.rfind(b")") + 2 :].split()
            if len(fields) > 1:
                yield int(entry), int(fields[1])


def source_of(pid: int, tid: int, family: Family) -> Source | None:
    """What a thread waits for outside of its process; None if it is not in such a call, or nothing is known of it.

    Args:
        pid: The process.
        tid: The thread.
        family: All processes of the job on this node.
    """
    call = read(f"/proc/{pid}/task/{tid}/syscall").split()
    if len(call) < 7 or not call[0].isdigit():
        return None
    number, first, second = int(call[0]), int(call[1], 16), int(call[2], 16)
    if number in _WAITS.get(_MACHINE, ()):
        child = first if 0 < first < 1 << 31 else 0
        return Source(SourceKind.CHILD, pids=[child] if child else [])
    if number in _READS.get(_MACHINE, ()):
        return _source(pid, [first], family)
    is_poll = number in _POLLS.get(_MACHINE, ())
    if is_poll or (number in _RESTARTED.get(_MACHINE, ()) and 0 < second <= MOST_POLLED):
        return _source(pid, _polled(pid, first, second), family)
    return None


def _polled(pid: int, at: int, count: int) -> list[int]:
    size = min(count, MOST_POLLED) * _POLLFD.size
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(at)
            content = memory.read(size)
    except (OSError, ValueError, OverflowError):
        return []
    whole = len(content) - len(content) % _POLLFD.size
    return [fd for fd, _, _ in _POLLFD.iter_unpack(content[:whole]) if fd >= 0]


def _source(pid: int, fds: Iterable[int], family: Family) -> Source | None:
    """Whose end is the other one of these files?"""
    links = [_link(f"/proc/{pid}/fd/{fd}") for fd in fds]
    pipes = [inode for kind, inode in links if kind == "pipe"]
    sockets = [inode for kind, inode in links if kind == "socket"]
    writers: set[int] = set()
    wanted, connections, shared = set(peers_of_unix(sockets)), {}, False
    if sockets:
        connections = tcp_sockets(pid)
        for inode in sockets:
            if inode in connections:
                there, is_shared = _other_end(connections, connections[inode])
                wanted.update(there)
                shared |= is_shared
    if pipes or wanted:
        for other in family.members():
            if other != pid and _holds(other, set(pipes), wanted):
                writers.add(other)
    remote = [connections[inode] for inode in sockets if inode in connections]
    if not pipes and not sockets:
        return None
    return _reported(pid, writers, family, shared, remote)


def _reported(pid: int, writers: set[int], family: Family, shared: bool, remote: list[Socket]) -> Source | None:
    ranks = sorted({rank for p in writers if (rank := family.rank_of(p)) is not None})
    address = next((f"{one.remote[0]}:{one.remote[1]}" for one in remote), "")
    if writers and all(family.descends_from(p, pid) for p in writers):
        return Source(SourceKind.CHILD, pids=sorted(writers), address=address)
    if not writers and remote and not shared and not _is_store(pid, remote):
        return Source(SourceKind.ELSEWHERE, address=address)
    outsiders = any(family.rank_of(p) is None for p in writers)
    if shared or outsiders or not writers or len(ranks) > 1:
        return Source(SourceKind.JOB, pids=sorted(writers), ranks=ranks, address=address)
    return Source(SourceKind.RANK, pids=sorted(writers), ranks=ranks, address=address)


def _other_end(connections: Mapping[int, Socket], mine: Socket) -> tuple[list[int], bool]:
    """Inodes of the other end of a TCP connection on this node, and whether many are connected to the same port."""
    there = [inode for inode, one in connections.items() if (one.local, one.remote) == (mine.remote, mine.local)]
    return there, sum(one.remote == mine.remote for one in connections.values()) >= SHARED


def _is_store(pid: int, remote: list[Socket]) -> bool:
    """Is it a connection to the store through which the ranks meet?"""
    port = next((v[12:] for v in _environment(pid) if v.startswith(b"MASTER_PORT=")), b"")
    return any(port == str(one.remote[1]).encode() for one in remote)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _link(path: str) -> tuple[str, int]:
    """What lies behind an open file: `socket` or `pipe` and its inode, or nothing."""
    try:
        kind, _, rest = str(Path(path).readlink()).partition(":[")
        return (kind, int(rest[:-1])) if rest else ("", 0)
    except (OSError, ValueError):
        return "", 0


def _holds(pid: int, pipes: set[int], sockets: set[int]) -> bool:
    """Has this process a writing end of one of these pipes, or one of these sockets?"""
    try:
        names = os.listdir(f"/proc/{pid}/fd")[:MOST_FILES]  # noqa: PTH208
    except OSError:
        return False
    for name in names:
        kind, inode = _link(f"/proc/{pid}/fd/{name}")
        if kind == "socket" and inode in sockets:
            return True
        if kind == "pipe" and inode in pipes and _writes(pid, name):
            return True
    return False


def _writes(pid: int, fd: str) -> bool:
    flags = next((line for line in read(f"/proc/{pid}/fdinfo/{fd}").splitlines() if line.startswith(b"flags:")), b"")
    return bool(flags) and int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
