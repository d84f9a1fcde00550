"""The Python c10d sensor: takes the place of the C++ one where that cannot be built.

The same kernels on the same dispatch key, written with `torch.library`, filling the same ring through the core library.
It costs 10 to 30 us an operation instead of 0.3, and three things differ, because Python must never be called on a
thread of Gloo (one that waits there for the GIL holds up the program's communication):

- The end of a collective is seen by `wait()`, else by a thread that asks every 2 ms: its time is that much too late.
- A wait of C++ code on a work object is unseen, except in `wait_tensor`. Operations issued from there (DDP's reducer)
  carry FUTURE_TAKEN from the start, which says just that.
- While another thread holds the GIL no end is seen.

A work object is held only while it is in flight, so no tensor outlives its operation by more than one poll. Those
of send/recv, whose end Gloo does not say, are never held: a weak reference sees them die.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from whichrank.errors import SensorError
from whichrank.model.codes import Flag
from whichrank.model.kinds import Kind
from whichrank.model.sensors import C10D
from whichrank.sensors import backward, groups, marks, meetings, remote, steps
from whichrank.sensors.abi import DONE, DROPPED, FAILED, SENSOR_FALLBACK, WAIT_ENTRY, Core
from whichrank.sensors.arguments import LONGEST_TIMEOUT_MS, Group, Operator, operators
from whichrank.sensors.in_flight import InFlight

if TYPE_CHECKING:
    from whichrank.sensors.identity import Identity

POLL_EVERY_S = 0.002
POLL_WHEN_IDLE_S = 0.01
LONGEST_LAST_POLL_S = 2.0  # how long the end of a process is held up at most
_TAKEN, _INFERRED = int(Flag.FUTURE_TAKEN), int(Flag.END_INFERRED)
# Python code that calls C++ which issues operations and waits for them on its own.
_WAITS_UNSEEN = ("torch/autograd/graph.py", "torch/distributed/utils.py", "torch/nn/parallel/distributed.py")

_sensor: Sensor | None = None


def switch_on(directory: bytes, identity: Identity, open_now: bool, why: str) -> None:
    """Start observing with Python kernels; again in a forked child that became a rank.

    Args:
        directory: The job's folder in shared memory.
        identity: What is known of this process.
        open_now: Make the ring at once instead of at the first process group.
        why: What kept the C++ sensor from being used; its first line goes into the ring.
    """
    global _sensor
    if _sensor is None:
        _sensor = Sensor()
        _sensor.register()
    _sensor.directory, _sensor.identity, _sensor.why = directory, identity, why.split("\n")[0]
    if open_now and not _sensor.open_ring():
        _sensor.enabled = False
    if identity.local_rank == 0:  # a launcher has none, and what has started it has said so
        print(f"whichrank: the Python sensor is used, at 10 to 30 us an operation: {_sensor.why}", file=sys.stderr)


def observe(on: bool) -> None:
    """Take the kernels away, or put them back. For measurements.

    Raises:
        SensorError: The Python sensor is not in use in this process.
    """
    if _sensor is None:
        raise SensorError("the Python sensor is not in use in this process", mend="whichrank doctor")
    _sensor.attach() if on else _sensor.detach()


class Sensor:
    """The state of the Python sensor in this process."""

    def __init__(self) -> None:
        from torch._C._distributed_c10d import ProcessGroup, Work

        self.core = Core()
        self.directory, self.why = b"", ""
        self.identity: Identity | None = None
        self.enabled = True
        self.groups: dict[int, Group] = {}  # by id of the Python group, which torch keeps while the group lives
        self._deaths: dict[int, weakref.ref[Any]] = {}
        self.collectives: dict[int, InFlight] = {}  # by id of the work object
        self.sends: dict[int, InFlight] = {}  # send and receive, likewise
        self.by_storage: dict[int, InFlight] = {}
        self._issued = threading.local()  # the send or receive that the kernel issued and no work object claimed yet
        self._opening = threading.Lock()
        self._polling = False
        self._poller: threading.Thread | None = None
        self._unbox_group, self._unbox_work = ProcessGroup.unbox, Work.unbox
        self._is_completed = Work.is_completed
        self._get_future = Work.get_future
        self._libraries: list[Any] = []  # of the kernels, while they are attached
        self._unseen_waits: dict[Any, bool] = {}
        self._left_to_parent: list[Any] = []

    # ---- switching on --------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Put the kernels on the operators and the marks on the work objects."""
        from torch._C._distributed_c10d import ProcessGroup, Work

        self.attach()
        marks.mark_waits(self, Work)
        marks.claim_sends(self, ProcessGroup)
        groups.watch(self.open_group, self.retime_groups, self.close_group)
        steps.watch()
        backward.watch()
        remote.watch(self.open_ring)
        meetings.watch()
        os.register_at_fork(after_in_child=self._forget_in_child)
        atexit.register(self._stop_polling)

    def attach(self) -> None:
        """Put the kernels on the operators."""
        if self._libraries:
            return
        below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        make_library: Any = torch.library.Library
        library, functional = make_library("c10d", "IMPL"), make_library("_c10d_functional", "IMPL")
        for operator in operators():
            library.impl(operator.name, self._kernel(operator, below), "BackendSelect", with_keyset=True)
        functional.impl("wait_tensor", marks.wait_tensor_kernel(self, below), "BackendSelect", with_keyset=True)
        self._libraries = [library, functional]  # dropping them would take the kernels away

    def detach(self) -> None:
        """Take the kernels away."""
        for library in self._libraries:
            library._destroy()
        self._libraries = []

    def open_ring(self, group: Any = None, members: list[int] | None = None) -> int:
        """The ring of this process, made on first call; rank and size are learned from `group` where unknown."""
        ring: int = self.core.process_ring() or 0
        identity = self.identity
        if identity is None:
            return 0
        if ring and identity.rank < 0 and group is not None and not members:
            self.core.set_rank(ring, group.rank(), group.size())
        if ring:
            return ring
        if group is not None and identity.rank < 0:
            identity.rank = members[group.rank()] if members else group.rank()
        if group is not None and identity.world_size < 0 and not members:
            identity.world_size = group.size()
        ring = self.core.open_ring(self.directory, identity)
        if ring:
            self.core.sensor_set(ring, C10D.place, SENSOR_FALLBACK, self.why.encode()[:59])
        return ring

    # ---- process groups ------------------------------------------------------------------------------------------

    def open_group(self, group: Any) -> Group | None:
        """The entry of a process group, made on first sight."""
        with self._opening:
            known = self.groups.get(id(group))
            if known is not None or not self.enabled:
                return known
            facts = _facts(group)
            ring = self.open_ring(group, facts.members)
            if not ring:
                self.enabled = False  # no ring to be had: everything passes from now on
                return None
            size = group.size()
            members = facts.members or list(range(size))
            slot = self.core.comm_open(
                ring,
                str(group.group_name or "").encode(),
                str(group.group_desc or "").encode(),
                (facts.backend or "unknown").encode(),
                size,
                group.rank(),
                _numbers(members) if len(members) == size else None,
                facts.timeout_ms,
            )
            made = Group(slot, facts.timeout_ms, facts.timeout_ms, facts.gloo_devices, facts.other_devices)
            key = id(group)
            self._deaths[key] = weakref.ref(group, lambda _: self._forget_group(key))
            self.groups[key] = made
            self._start_polling()
            return made

    def retime_groups(self) -> None:
        """Ask every group for its timeout: some group was given another one."""
        with self._opening:
            ring = self.core.process_ring()
            for key, known in list(self.groups.items()):
                died = self._deaths.get(key)
                group = died() if died is not None else None
                now_ms = _facts(group).timeout_ms if group is not None else 0
                if ring and now_ms not in (0, known.timeout_ms) and self.groups.get(key) is known:
                    self.groups[key] = replace(known, timeout_ms=now_ms)
                    self.core.comm_set_timeout(ring, known.slot, now_ms)

    def close_group(self, group: Any) -> None:
        """Give the slot of a process group back."""
        self._forget_group(id(group))

    def _forget_group(self, key: int) -> None:
        self._deaths.pop(key, None)
        gone = self.groups.pop(key, None)
        ring = self.core.process_ring()
        if gone is not None and ring and gone.slot >= 0:
            self.core.comm_close(ring, gone.slot)

    # ---- one operation -------------------------------------------------------------------------------------------

    def _kernel(self, operator: Operator, below: Any) -> Callable[..., Any]:
        redispatch = operator.call.redispatch
        inside = operator.kind == Kind.MONITORED_BARRIER

        def kernel(keyset: Any, *arguments: Any, **named: Any) -> Any:
            entry = self._entry(operator, arguments) if self.enabled else None
            if entry is None:
                return redispatch(keyset & below, *arguments, **named)
            if self.core.gate_is_closed(entry.ring):
                self.core.gate_pass(entry.ring)  # what a handler of a signal raises behind it is the program's
            self.core.op_begin(entry.ring, entry.op)
            row = self.core.wait_begin(entry.ring, entry.op, WAIT_ENTRY) if inside else -1
            try:
                result = redispatch(keyset & below, *arguments, **named)
            except BaseException as error:
                self.fail(entry, str(error))
                if inside:
                    self.core.wait_end(entry.ring, entry.op, row)
                raise
            if inside:
                self.end(entry, DONE)
                self.core.wait_end(entry.ring, entry.op, row)
            else:
                self._issued_call(operator, entry, result)
            return result

        return kernel

    def _entry(self, operator: Operator, arguments: tuple[Any, ...]) -> InFlight | None:
        """What the ring is to hold of the operation. Fails open: None leaves it unobserved."""
        try:
            process_group = self._unbox_group(arguments[operator.group])
            group = self.groups.get(id(process_group)) or self.open_group(process_group)
            ring = self.core.process_ring()
            if group is None or group.slot < 0 or not ring:
                return None
            reading = operator.read(arguments, group)
            entry = InFlight(ring, reading.op, reading.gloo)
            if reading.gloo and not operator.is_message:
                entry.filled = tuple([tensor.untyped_storage()._cdata for tensor in reading.filled])
                if self._is_waited_for_unseen():
                    entry.op.flags |= _TAKEN
        except Exception:
            return None
        return entry

    def _is_waited_for_unseen(self) -> bool:
        """Whether the operation comes from C++ code that waits on its own: no Python frame, or one known to call it."""
        frame = sys._getframe(2).f_back
        if frame is None:
            return True
        known = self._unseen_waits.get(frame.f_code)
        if known is None:
            known = self._unseen_waits[frame.f_code] = frame.f_code.co_filename.endswith(_WAITS_UNSEEN)
        return known

    def _issued_call(self, operator: Operator, entry: InFlight, result: Any) -> None:
        """After the call returned: find out when the operation ends."""
        try:
            if not entry.gloo:  # what is known is that it was issued
                self.end(entry, DONE)
                return
            self.core.op_issued(entry.ring, entry.op)
            if operator.is_message:
                self.core.op_flag(entry.ring, entry.op, _INFERRED)
                self._drop_unclaimed()
                self._issued.entry = entry
                return
            entry.work = self._unbox_work(result[-1] if isinstance(result, tuple) else result)
            self.collectives[id(entry.work)] = entry
            for address in entry.filled:
                self.by_storage[address] = entry
        except Exception:
            self.end(entry, DROPPED)

    # ---- send and receive ----------------------------------------------------------------------------------------

    def claim(self, work: Any) -> None:
        """Tie the send or receive that this thread just issued to its work object, without holding that."""
        entry: InFlight | None = getattr(self._issued, "entry", None)
        if entry is None:
            return
        self._issued.entry = None
        entry.watched = id(work), weakref.ref(work, lambda _: self.end(entry, DROPPED))
        self.sends[id(work)] = entry

    def _drop_unclaimed(self) -> None:
        """A send or receive that was not issued through a Python group: nothing can say its end."""
        entry: InFlight | None = getattr(self._issued, "entry", None)
        if entry is not None:
            self._issued.entry = None
            self.end(entry, DROPPED)

    # ---- the end -------------------------------------------------------------------------------------------------

    def entry_of(self, work: Any) -> InFlight | None:
        """The operation in flight of a work object."""
        return self.collectives.get(id(work)) or self.sends.get(id(work))

    def filling(self, tensor: Any) -> InFlight | None:
        """The collective in flight that fills `tensor`."""
        if not self.by_storage:
            return None
        try:
            return self.by_storage.get(tensor.untyped_storage()._cdata)
        except Exception:
            return None  # a tensor without storage, while a graph is traced

    def writes(self, entry: InFlight) -> bool:
        """Whether the ring that the operation began in is still this process's own."""
        return bool(self.core.process_ring() == entry.ring)

    def end(self, entry: InFlight, status: int) -> None:
        """Enter the end, once, and let go of the work object."""
        watched, work = entry.watched, entry.work
        entry.watched = entry.work = None
        if watched is not None and self.sends.get(watched[0]) is entry:
            del self.sends[watched[0]]
        if work is not None:
            self.collectives.pop(id(work), None)
            for address in entry.filled:
                if self.by_storage.get(address) is entry:
                    self.by_storage.pop(address, None)
        if self.writes(entry):
            self.core.op_end(entry.ring, entry.op, status)

    def end_seen(self, entry: InFlight) -> None:
        """Enter the end of an operation whose work object says that it is complete, well or not."""
        error = "" if entry.work is None else self._error_of(entry.work)
        if error:
            self.fail(entry, error)
        else:
            self.end(entry, DONE)

    def _error_of(self, work: Any) -> str:
        try:
            future = self._get_future(work)
        except Exception:
            return ""  # Gloo's reduce-scatter has none; its wait() says
        try:
            future.value()
        except Exception as error:
            return str(error) or "it failed"
        return ""

    def fail(self, entry: InFlight, what: str) -> None:
        """Enter an end by an error."""
        if self.writes(entry):
            self.core.note_failure(entry.ring, what.encode(errors="replace")[:191])
        self.end(entry, FAILED)

    def poll(self) -> None:
        """Enter the end of every collective that completed since the last poll."""
        for entry in list(self.collectives.values()):
            work = entry.work
            if work is not None and self._is_completed(work):
                self.end_seen(entry)

    # ---- the thread that polls -----------------------------------------------------------------------------------

    def _start_polling(self) -> None:
        if not self._polling:
            self._polling = True
            self._poller = threading.Thread(target=self._keep_polling, name="whichrank-poll", daemon=True)
            self._poller.start()

    def _keep_polling(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the program's
        while self._polling:
            time.sleep(POLL_EVERY_S if self.collectives else POLL_WHEN_IDLE_S)
            try:
                self.poll()
            except Exception as error:
                self._polling = False
                print(f"whichrank: ends of operations are no longer seen: {error}", file=sys.stderr)

    def _stop_polling(self) -> None:
        """The interpreter ends: wait for the thread, and see what completed since its last poll.

        The thread must have ended by then: whoever drops the last reference to a work object takes the GIL again in C++
        code, and where the interpreter is being finalized that aborts the process.
        """
        if self._polling:
            self._polling = False
            with contextlib.suppress(Exception):
                if self._poller is not None:
                    self._poller.join(LONGEST_LAST_POLL_S)
                self.poll()

    def _forget_in_child(self) -> None:
        """A forked child is not the rank that its environment names, and the parent's work objects are not its own."""
        self._left_to_parent += [self.collectives, self.sends, self.groups, self._deaths]
        self.collectives, self.sends, self.groups, self._deaths, self.by_storage = {}, {}, {}, {}, {}
        self._issued = threading.local()
        self._opening = threading.Lock()
        self._polling = False
        self.enabled = True
        if self.identity is not None:
            self.identity.rank = self.identity.local_rank = -1


@dataclass(frozen=True, slots=True)
class _Facts:
    backend: str
    members: list[int]
    timeout_ms: int
    gloo_devices: frozenset[str]
    other_devices: frozenset[str]


def _facts(group: Any) -> _Facts:
    """What the backends of a process group, and torch's own table of groups, say of it."""
    names: dict[str, str] = {}
    members: list[int] = []
    timeout_ms = 0
    for device in group._device_types:
        try:
            backend = group._get_backend(device)
            names[device.type] = backend.name()
            if not timeout_ms:
                timeout_ms = min(int(backend.options._timeout.total_seconds() * 1000), LONGEST_TIMEOUT_MS)
                members = list(backend.options.global_ranks_in_group)
        except Exception:  # noqa: S112 - a backend without these
            continue
    if not members:
        members = _members_in_table(group)
    gloo = frozenset(device for device, name in names.items() if name == "gloo")
    return _Facts("/".join(dict.fromkeys(names.values())), members, timeout_ms, gloo, frozenset(names) - gloo)


def _members_in_table(group: Any) -> list[int]:
    """Global ranks by group rank, as torch keeps them; none for the default group and for one just being made."""
    from torch.distributed import distributed_c10d

    world = distributed_c10d._world
    ranks: dict[int, int] = world.pg_group_ranks.get(group, {})
    return [] if group is world.default_pg else sorted(ranks, key=ranks.__getitem__)


def _numbers(members: list[int]) -> Any:
    return (ctypes.c_int32 * len(members))(*members)
